from calgrid.storage.schema import STUDY_FILES


localrules:
    manifest,


rule manifest:
    input:
        JOBS.repair_trigger(f"{STUDY}/manifest.json"),
    output:
        f"{STUDY}/manifest.json",
    log:
        f"{LOGS}/{JOBS.study}/manifest.log",
    benchmark:
        f"{TIMES}/{JOBS.study}/manifest.tsv"
    params:
        fingerprint=JOBS.plan.manifest()["fingerprint"],
    run:
        from calgrid.storage.records import write_record

        write_record(Path(output[0]), JOBS.plan.manifest())


rule aggregate:
    input:
        JOBS.repair_trigger(f"{STUDY}/metrics.parquet"),
        JOBS.records(),
        manifest=f"{STUDY}/manifest.json",
        parts=JOBS.parts(),
    output:
        [f"{STUDY}/{name}" for name in STUDY_FILES],
    log:
        f"{LOGS}/{JOBS.study}/aggregate.log",
    benchmark:
        f"{TIMES}/{JOBS.study}/aggregate.tsv"
    conda:
        "../../envs/report.yaml"
    threads: JOBS.resources.aggregate_threads
    resources:
        mem_mb=JOBS.resources.aggregate_memory,
        runtime=60,
    params:
        folder=subpath(output[0], parent=True),
        fingerprint=JOBS.plan.stage("aggregate"),
    shell:
        "python -m calgrid aggregate --manifest {input.manifest:q} --out {params.folder:q} --threads {threads}"
        " --log {log:q} >> {log:q} 2>&1"
