rule predict:
    input:
        model=ancient(JOBS.model),
        data=ancient(JOBS.data),
        shifts=ancient(JOBS.shifts),
    output:
        record=update(f"{PREDICTED}/predict.json"),
        logits=update(directory(f"{PREDICTED}/logits")),
    log:
        f"{LOGS}/predict/{RUN_PATH}-{{id}}.log",
    wildcard_constraints:
        # all but those; a pattern of the ids of all predictions would slow down large grids
        id=f"(?!{JOBS.ids('import')}|{JOBS.ids('ensemble')})[0-9a-f]+",
    conda:
        "../../envs/train.yaml"
    threads: JOBS.resources.threads("predict")
    resources:
        gpu=JOBS.resources.gpus("predict"),
        mem_mb=JOBS.resources.memory("predict"),
        runtime=JOBS.resources.minutes("predict"),
    params:
        plan=PLAN,
        folder=PREDICTED,
    shell:
        "python -m calgrid predict --plan {params.plan:q} --out {params.folder:q}"
        " --model {input.model:q} --data {input.data:q} --shifts {input.shifts:q}"
        " --threads {threads} --log {log:q} >> {log:q} 2>&1"
