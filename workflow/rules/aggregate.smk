from calgrid.storage.schema import STUDY_FILES


localrules:
    manifest,


rule manifest:
    input:
        BOOK.repair_trigger(f"{STUDY}/manifest.json"),
    output:
        f"{STUDY}/manifest.json",
    log:
        f"{LOGS}/{BOOK.study}/manifest.log",
    benchmark:
        f"{TIMES}/{BOOK.study}/manifest.tsv"
    params:
        fingerprint=BOOK.plan.manifest()["fingerprint"],
    run:
        from calgrid.storage.records import write_record

        write_record(Path(output[0]), BOOK.plan.manifest())


rule aggregate:
    input:
        BOOK.repair_trigger(f"{STUDY}/metrics.parquet"),
        BOOK.records(),
        BOOK.probes(),
        manifest=f"{STUDY}/manifest.json",
        parts=BOOK.parts(),
    output:
        [f"{STUDY}/{name}" for name in STUDY_FILES],
    log:
        f"{LOGS}/{BOOK.study}/aggregate.log",
    benchmark:
        f"{TIMES}/{BOOK.study}/aggregate.tsv"
    conda:
        "../../envs/report.yaml"
    threads: BOOK.needs.aggregate_threads
    resources:
        mem_mb=lambda wildcards, attempt: attempt * 4000,
        runtime=60,
    params:
        folder=lambda wildcards: STUDY,
        fingerprint=BOOK.stage_fingerprint("aggregate"),
    shell:
        "python -m calgrid aggregate --manifest {input.manifest:q} --out {params.folder:q} --threads {threads}"
        " --log {log:q} >> {log:q} 2>&1"
