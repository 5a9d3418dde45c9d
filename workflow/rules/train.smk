rule train:
    input:
        JOBS.repair_trigger(f"{RUN}/train.json"),
        data=JOBS.data,
        first_stage=JOBS.first_stage,
    output:
        update(f"{RUN}/train.json"),
    log:
        JOBS.layout.log("train", KEY),
    benchmark:
        f"{TIMES}/train/{KEY}.tsv"
    conda:
        "../../envs/train.yaml"
    threads: JOBS.resources.train_threads
    resources:
        gpu=JOBS.resources.train_gpus,
        mem_mb=JOBS.resources.train_memory,
        runtime=JOBS.resources.train_minutes,
    params:
        folder=RUN,
        data=f"{RESULTS}/data/{{dataset}}",
        spec=JOBS.spec("train"),
        options=JOBS.train_options,
    shell:
        "python -m calgrid train --spec {params.spec:q} --data {params.data:q} --out {params.folder:q}"
        " {params.options} --threads {threads} --log {log:q} >> {log:q} 2>&1"
