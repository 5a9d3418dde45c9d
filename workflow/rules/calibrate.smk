rule calibrate:
    input:
        logits=ancient(JOBS.logits),
    output:
        record=update(f"{CALIBRATED}/calibrate.json"),
        metrics=update(f"{CALIBRATED}/metrics.parquet"),
    log:
        f"{LOGS}/calibrate/{RUN_PATH}-{{id}}.log",
    conda:
        "../../envs/calibrate.yaml"
    threads: JOBS.resources.threads("calibrate")
    resources:
        mem_mb=JOBS.resources.memory("calibrate"),
        runtime=JOBS.resources.minutes("calibrate"),
    params:
        plan=PLAN,
        folder=CALIBRATED,
    shell:
        "python -m calgrid calibrate-run --plan {params.plan:q} --out {params.folder:q}"
        " --logits {input.logits:q} --threads {threads} --log {log:q} >> {log:q} 2>&1"
