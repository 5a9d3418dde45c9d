if BOOK.has_external():
    EXTERNAL_KEY = "external/{dataset}/{backbone}/{method}/seed{seed}"

    rule import_external:
        input:
            BOOK.external_files,
        output:
            f"{RESULTS}/runs/{EXTERNAL_KEY}/predict.json",
            f"{RESULTS}/runs/{EXTERNAL_KEY}/logits/last/val.parquet",
            f"{RESULTS}/runs/{EXTERNAL_KEY}/logits/last/test.parquet",
        log:
            f"{LOGS}/import/{EXTERNAL_KEY}.log",
        benchmark:
            f"{TIMES}/import/{EXTERNAL_KEY}.tsv"
        conda:
            "../../envs/calibrate.yaml"
        threads: 1
        resources:
            mem_mb=lambda wildcards, attempt: attempt * 4000,
            runtime=30,
        params:
            folder=f"{RESULTS}/runs/{EXTERNAL_KEY}",
            spec=BOOK.external_spec,
        shell:
            "python -m calgrid import --spec {params.spec:q} --files {input:q} --out {params.folder:q} >> {log:q} 2>&1"
