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
    threads: JOBS.resources.threads("train")
    resources:
        gpu=JOBS.resources.gpus("train"),
        # of a cluster: all GPUs of a training are in one machine
        nodes=1,
        mem_mb=JOBS.resources.memory("train"),
        runtime=JOBS.resources.minutes("train"),
    params:
        plan=PLAN,
        folder=TRAINED,
        root=JOBS.data_root or ".",
    shell:
        "python -m calgrid train --plan {params.plan:q} --out {params.folder:q} --data {input.data:q}"
        " --first-stage {input.first_stage:q} --data-root {params.root:q} --threads {threads}"
        " --log {log:q} >> {log:q} 2>&1"
