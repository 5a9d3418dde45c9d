# Files of a study have no fingerprint in their names. `JOBS.outdated` makes Snakemake replace those
# that other options or code made.
rule aggregate:
    input:
        JOBS.outdated("aggregate"),
        records=ancient(
            JOBS.results_of("train", "predict", "import", "ensemble", "calibrate", "probe")
        ),
    output:
        record=JOBS.record("aggregate"),
        files=JOBS.aggregated_files(),
    log:
        f"{LOGS}/{JOBS.study}/aggregate.log",
    conda:
        "../../envs/report.yaml"
    threads: JOBS.resources.threads("aggregate")
    resources:
        mem_mb=JOBS.resources.memory("aggregate"),
        runtime=JOBS.resources.minutes("aggregate"),
    params:
        plan=PLAN,
    shell:
        "python -m calgrid aggregate --plan {params.plan:q}"
        " --record {output.record:q} --threads {threads} --log {log:q} >> {log:q} 2>&1"
