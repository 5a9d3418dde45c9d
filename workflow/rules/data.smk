rule prepare_data:
    input:
        BOOK.repair_trigger(f"{RESULTS}/data/{{unit}}/manifest.json"),
        BOOK.data_base,
    output:
        update(f"{RESULTS}/data/{{unit}}/manifest.json"),
    log:
        f"{LOGS}/data/{{unit}}.log",
    benchmark:
        f"{TIMES}/data/{{unit}}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: BOOK.needs.prepare_threads
    resources:
        mem_mb=lambda wildcards, attempt: attempt * 2000,
        runtime=BOOK.needs.prepare_minutes,
    params:
        folder=f"{RESULTS}/data/{{unit}}",
        options=BOOK.data_options,
        fingerprint=BOOK.data_fingerprint,
    shell:
        "python -m calgrid data --unit {wildcards.unit} --out {params.folder:q} --fingerprint {params.fingerprint}"
        " {params.options} --threads {threads} --log {log:q} >> {log:q} 2>&1"
