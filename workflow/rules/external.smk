rule import_external:
    input:
        JOBS.repair_trigger(f"{RUN}/predict.json"),
        files=JOBS.external_files,
    output:
        update(f"{RUN}/predict.json"),
    log:
        JOBS.layout.log("import", KEY),
    benchmark:
        f"{TIMES}/import/{KEY}.tsv"
    wildcard_constraints:
        protocol=EXTERNAL,
    conda:
        "../../envs/calibrate.yaml"
    threads: 1
    resources:
        mem_mb=JOBS.resources.import_memory,
        runtime=30,
    params:
        folder=RUN,
        spec=JOBS.spec("external"),
    shell:
        "python -m calgrid import --spec {params.spec:q} --files {input.files:q} --out {params.folder:q}"
        " --log {log:q} >> {log:q} 2>&1"
