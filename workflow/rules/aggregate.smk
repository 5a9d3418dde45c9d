rule aggregate:
    input:
        records=ancient(JOBS.results_of("train", "predict", "import", "calibrate", "probe")),
    output:
        record=JOBS.record("aggregate"),
        files=[f"{STUDY}/{name}" for name in STUDY_FILES],
    log:
        f"{LOGS}/{JOBS.study}/aggregate.log",
    conda:
        "../../envs/report.yaml"
    threads: JOBS.resources.aggregate_threads
    resources:
        mem_mb=JOBS.resources.aggregate_memory,
        runtime=60,
    params:
        plan=PLAN,
    shell:
        "python -m calgrid aggregate --plan {params.plan:q}"
        " --record {output.record:q} --threads {threads} --log {log:q} >> {log:q} 2>&1"
