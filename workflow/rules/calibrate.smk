rule calibrate:
    input:
        BOOK.repair_trigger(f"{PART}/calibrate.json"),
        BOOK.predictions,
    output:
        f"{PART}/metrics.parquet",
        f"{PART}/calibrate.json",
    log:
        f"{LOGS}/{BOOK.study}/calibrate/{KEY}.log",
    benchmark:
        f"{TIMES}/{BOOK.study}/calibrate/{KEY}.tsv"
    conda:
        "../../envs/calibrate.yaml"
    threads: 1
    resources:
        mem_mb=BOOK.needs.calibrate_memory,
        runtime=60,
    params:
        run=RUN,
        folder=PART,
        spec=BOOK.calibrate_spec,
    shell:
        "python -m calgrid evaluate --spec {params.spec:q} --run {params.run:q} --out {params.folder:q}"
        " --threads {threads} --log {log:q} >> {log:q} 2>&1"
