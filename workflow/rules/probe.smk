rule probe:
    input:
        model=ancient(JOBS.model),
        data=ancient(JOBS.data),
    output:
        record=update(f"{PROBED}/probe.json"),
        table=update(f"{PROBED}/table.parquet"),
    log:
        f"{LOGS}/probe_{{probe}}/{RUN_PATH}-{{id}}.log",
    conda:
        "../../envs/probe.yaml"
    threads: JOBS.resources.probe_threads
    resources:
        gpu=JOBS.gpus,
        mem_mb=JOBS.resources.probe_memory,
        runtime=JOBS.resources.probe_minutes,
    params:
        plan=PLAN,
        folder=PROBED,
    shell:
        "python -m calgrid probe --plan {params.plan:q} --out {params.folder:q}"
        " --model {input.model:q} --data {input.data:q} --threads {threads}"
        " --log {log:q} >> {log:q} 2>&1"
