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
    threads: JOBS.resources.threads("probe")
    resources:
        gpu=JOBS.resources.gpus("probe"),
        mem_mb=JOBS.resources.memory("probe"),
        runtime=JOBS.resources.minutes("probe"),
    params:
        plan=PLAN,
        folder=PROBED,
    shell:
        "python -m calgrid probe --plan {params.plan:q} --out {params.folder:q}"
        " --model {input.model:q} --data {input.data:q} --threads {threads}"
        " --log {log:q} >> {log:q} 2>&1"
