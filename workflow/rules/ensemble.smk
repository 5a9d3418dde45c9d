rule ensemble:
    input:
        members=ancient(JOBS.members),
    output:
        record=update(f"{PREDICTED}/predict.json"),
        logits=update(directory(f"{PREDICTED}/logits")),
    log:
        f"{LOGS}/ensemble/{RUN_PATH}-{{id}}.log",
    wildcard_constraints:
        id=JOBS.ids("ensemble"),
    conda:
        "../../envs/calibrate.yaml"
    threads: 1
    resources:
        mem_mb=JOBS.resources.memory("ensemble"),
        runtime=JOBS.resources.minutes("ensemble"),
    params:
        plan=PLAN,
        folder=PREDICTED,
    shell:
        "python -m calgrid ensemble --plan {params.plan:q} --out {params.folder:q}"
        " --members {input.members:q} --log {log:q} >> {log:q} 2>&1"
