rule train:
    input:
        data=BOOK.data,
        first_stage=BOOK.first_stage,
    output:
        f"{RUN}/model.safetensors",
        f"{RUN}/history.parquet",
        f"{RUN}/train.json",
    log:
        f"{LOGS}/train/{KEY}.log",
    benchmark:
        f"{TIMES}/train/{KEY}.tsv"
    conda:
        "../../envs/train.yaml"
    threads: 1
    resources:
        gpu=BOOK.gpus,
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        # a run that reaches its limit goes on from its resume state, so a retry needs no more time
        runtime=240,
    params:
        folder=RUN,
        data=f"{RESULTS}/data/{{dataset}}",
        spec=BOOK.train_spec,
    shell:
        "python -m calgrid train --spec {params.spec:q} --data {params.data:q} --out {params.folder:q}"
        " --first-stage {input.first_stage:q} --threads {threads} > {log:q} 2>&1"
