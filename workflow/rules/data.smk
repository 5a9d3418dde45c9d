rule prepare_data:
    input:
        JOBS.repair_trigger(f"{RESULTS}/data/{{unit}}/manifest.json"),
        JOBS.data_base,
    output:
        update(f"{RESULTS}/data/{{unit}}/manifest.json"),
    log:
        JOBS.layout.log("data", "{unit}"),
    benchmark:
        f"{TIMES}/data/{{unit}}.tsv"
    conda:
        "../../envs/data.yaml"
    threads: JOBS.resources.prepare_threads
    resources:
        mem_mb=JOBS.resources.prepare_memory,
        runtime=JOBS.resources.prepare_minutes,
    params:
        folder=f"{RESULTS}/data/{{unit}}",
        options=JOBS.data_options,
        fingerprint=lambda wildcards: JOBS.plan.data(wildcards.unit),
    shell:
        "python -m calgrid data --unit {wildcards.unit} --out {params.folder:q} --fingerprint {params.fingerprint}"
        " {params.options} --threads {threads} --log {log:q} >> {log:q} 2>&1"
