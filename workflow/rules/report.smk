TOTALS = [f"{STUDY}/{name}" for name in STUDY_FILES]


rule tables:
    input:
        JOBS.repair_trigger(f"{STUDY}/tables"),
        TOTALS,
        manifest=f"{STUDY}/manifest.json",
    output:
        report(
            directory(f"{STUDY}/tables"),
            patterns=["{name}.csv"],
            caption="../report/tables.rst",
            category="Tables",
        ),
    log:
        f"{LOGS}/{JOBS.study}/tables.log",
    benchmark:
        f"{TIMES}/{JOBS.study}/tables.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: attempt * JOBS.resources.report_memory("tables"),
        runtime=30,
    params:
        fingerprint=JOBS.plan.stage("tables"),
    shell:
        "python -m calgrid tables --manifest {input.manifest:q} --out {output:q} --threads {threads}"
        " --log {log:q} >> {log:q} 2>&1"


rule figures:
    input:
        JOBS.repair_trigger(f"{STUDY}/figures"),
        TOTALS,
        manifest=f"{STUDY}/manifest.json",
    output:
        report(
            directory(f"{STUDY}/figures"),
            patterns=["{name}.png"],
            caption="../report/figures.rst",
            category="Figures",
        ),
    log:
        f"{LOGS}/{JOBS.study}/figures.log",
    benchmark:
        f"{TIMES}/{JOBS.study}/figures.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: attempt * JOBS.resources.report_memory("figures"),
        runtime=30,
    params:
        fingerprint=JOBS.plan.stage("figures"),
    shell:
        "python -m calgrid figures --manifest {input.manifest:q} --out {output:q} --threads {threads}"
        " --log {log:q} >> {log:q} 2>&1"


rule report:
    input:
        JOBS.repair_trigger(f"{STUDY}/report.html"),
        TOTALS,
        manifest=f"{STUDY}/manifest.json",
        tables=f"{STUDY}/tables",
        figures=f"{STUDY}/figures",
    output:
        f"{STUDY}/report.html",
    log:
        f"{LOGS}/{JOBS.study}/report.log",
    benchmark:
        f"{TIMES}/{JOBS.study}/report.tsv"
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: attempt * JOBS.resources.report_memory("report"),
        runtime=30,
    params:
        fingerprint=JOBS.plan.stage("report"),
    shell:
        "python -m calgrid report --manifest {input.manifest:q} --out {output:q} --threads {threads}"
        " --log {log:q} >> {log:q} 2>&1"
