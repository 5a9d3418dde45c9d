rule calibrate:
    input:
        JOBS.repair_trigger(f"{PART}/calibrate.json"),
        predicted=f"{RUN}/predict.json",
    output:
        f"{PART}/metrics.parquet",
        f"{PART}/calibrate.json",
    log:
        JOBS.layout.log("calibrate", KEY),
    benchmark:
        f"{TIMES}/{JOBS.study}/calibrate/{KEY}.tsv"
    conda:
        "../../envs/calibrate.yaml"
    threads: JOBS.resources.calibrate_threads
    resources:
        mem_mb=JOBS.resources.calibrate_memory,
        runtime=JOBS.resources.calibrate_minutes,
    params:
        run=lambda wildcards, input: str(Path(input.predicted).parent),
        folder=PART,
        spec=JOBS.spec("calibrate"),
    shell:
        "python -m calgrid calibrate-run --spec {params.spec:q} --run {params.run:q} --out {params.folder:q}"
        " --threads {threads} --log {log:q} >> {log:q} 2>&1"
