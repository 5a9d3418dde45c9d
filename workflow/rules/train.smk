rule train:
    input:
        BOOK.repair_trigger(f"{RUN}/train.json"),
        data=BOOK.data,
        first_stage=BOOK.first_stage,
    output:
        update(f"{RUN}/train.json"),
    log:
        f"{LOGS}/train/{KEY}.log",
    benchmark:
        f"{TIMES}/train/{KEY}.tsv"
    conda:
        "../../envs/train.yaml"
    threads: 1
    resources:
        gpu=BOOK.needs.train_gpus,
        mem_mb=BOOK.needs.train_memory,
        runtime=BOOK.needs.train_minutes,
    params:
        folder=RUN,
        data=f"{RESULTS}/data/{{dataset}}",
        spec=BOOK.train_spec,
        options=BOOK.train_options,
    shell:
        "python -m calgrid train --spec {params.spec:q} --data {params.data:q} --out {params.folder:q}"
        " {params.options} --threads {threads} --log {log:q} >> {log:q} 2>&1"
