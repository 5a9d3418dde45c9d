# Files of a study have no fingerprint in their names; `JOBS.changed` makes Snakemake replace those that
# were made from other results, options or code.
MADE = {
    "aggregate": JOBS.aggregated_files(),
    "tables": report(
        directory(f"{STUDY}/tables"),
        patterns=["{name}.csv"],
        caption="../report/tables.rst",
        category="Tables",
    ),
    "figures": report(
        directory(f"{STUDY}/figures"),
        patterns=["{name}.png"],
        caption="../report/figures.rst",
        category="Figures",
    ),
    "report": f"{STUDY}/report.html",
}
for STAGE, ABOVE in MADE_FROM.items():
    READ = [getattr(rules, stage).output for stage in ABOVE]

    rule:
        name:
            STAGE
        input:
            JOBS.changed(STAGE),
            files=ancient(READ or JOBS.results_of_runs()),
        output:
            record=JOBS.record(STAGE),
            files=MADE[STAGE],
        log:
            f"{LOGS}/{STUDY.name}/{STAGE}.log",
        conda:
            "../../envs/report.yaml"
        threads: JOBS.resources.threads(STAGE)
        resources:
            mem_mb=JOBS.resources.memory(STAGE),
            runtime=JOBS.resources.minutes(STAGE),
        params:
            kind=STAGE,
            plan=PLAN,
        shell:
            "python -m calgrid job {params.kind} --plan {params.plan:q}"
            " --out {output.record:q} --threads {threads} --log {log:q} >> {log:q} 2>&1"
