rule train:
    input:
        data=ancient(JOBS.data),
        first_stage=ancient(JOBS.first_stage),
    output:
        record=update(f"{TRAINED}/train.json"),
        model=update(f"{TRAINED}/model.safetensors"),
        history=update(f"{TRAINED}/history.parquet"),
    log:
        f"{LOGS}/train/{RUN_PATH}-{{id}}.log",
    conda:
        "../../envs/train.yaml"
    threads: JOBS.resources.train_threads
    resources:
        gpu=JOBS.resources.train_gpus,
        mem_mb=JOBS.resources.train_memory,
        runtime=JOBS.resources.train_minutes,
    params:
        plan=PLAN,
        folder=TRAINED,
        root=JOBS.data_root or ".",
    shell:
        "python -m calgrid train --plan {params.plan:q} --out {params.folder:q} --data {input.data:q}"
        " --first-stage {input.first_stage:q} --data-root {params.root:q} --threads {threads}"
        " --log {log:q} >> {log:q} 2>&1"
