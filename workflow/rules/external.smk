rule import_external:
    input:
        files=ancient(JOBS.external_files),
    output:
        record=update(f"{PREDICTED}/predict.json"),
        logits=update(directory(f"{PREDICTED}/logits")),
    log:
        f"{LOGS}/import/{RUN_PATH}-{{id}}.log",
    wildcard_constraints:
        id=JOBS.ids("import"),
    conda:
        "../../envs/calibrate.yaml"
    threads: 1
    resources:
        mem_mb=JOBS.resources.memory("import"),
        runtime=JOBS.resources.minutes("import"),
    params:
        plan=PLAN,
        folder=PREDICTED,
    shell:
        "python -m calgrid import --plan {params.plan:q} --out {params.folder:q}"
        " --files {input.files:q} --log {log:q} >> {log:q} 2>&1"
