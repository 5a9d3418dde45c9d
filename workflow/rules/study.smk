# Files of a study have no fingerprint in their names; `JOBS.changed` makes Snakemake replace those that
# were made from other results, options or code.
rule aggregate:
    input:
        JOBS.changed("aggregate"),
        records=ancient(JOBS.results_of_runs()),
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
        "python -m calgrid job aggregate --plan {params.plan:q}"
        " --out {output.record:q} --threads {threads} --log {log:q} >> {log:q} 2>&1"


rule tables:
    input:
        JOBS.changed("tables"),
        files=ancient(rules.aggregate.output),
    output:
        record=JOBS.record("tables"),
        tables=report(
            directory(f"{STUDY}/tables"),
            patterns=["{name}.csv"],
            caption="../report/tables.rst",
            category="Tables",
        ),
    log:
        f"{LOGS}/{JOBS.study}/tables.log",
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=JOBS.resources.memory("tables"),
        runtime=JOBS.resources.minutes("tables"),
    params:
        plan=PLAN,
    shell:
        "python -m calgrid job tables --plan {params.plan:q}"
        " --out {output.record:q} --threads {threads} --log {log:q} >> {log:q} 2>&1"


rule figures:
    input:
        JOBS.changed("figures"),
        files=ancient(rules.aggregate.output),
    output:
        record=JOBS.record("figures"),
        figures=report(
            directory(f"{STUDY}/figures"),
            patterns=["{name}.png"],
            caption="../report/figures.rst",
            category="Figures",
        ),
    log:
        f"{LOGS}/{JOBS.study}/figures.log",
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=JOBS.resources.memory("figures"),
        runtime=JOBS.resources.minutes("figures"),
    params:
        plan=PLAN,
    shell:
        "python -m calgrid job figures --plan {params.plan:q}"
        " --out {output.record:q} --threads {threads} --log {log:q} >> {log:q} 2>&1"


rule report:
    input:
        JOBS.changed("report"),
        files=ancient(rules.aggregate.output),
        tables=ancient(rules.tables.output),
        figures=ancient(rules.figures.output),
    output:
        record=JOBS.record("report"),
        page=f"{STUDY}/report.html",
    log:
        f"{LOGS}/{JOBS.study}/report.log",
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=JOBS.resources.memory("report"),
        runtime=JOBS.resources.minutes("report"),
    params:
        plan=PLAN,
    shell:
        "python -m calgrid job report --plan {params.plan:q}"
        " --out {output.record:q} --threads {threads} --log {log:q} >> {log:q} 2>&1"
