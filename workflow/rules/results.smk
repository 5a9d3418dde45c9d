# Folders of results, named by options, code and files of users; a rule for each kind of job that calgrid.plan
# declares. Inputs are `ancient`, because times say nothing of content: `JOBS.changed` compares it. Outputs are
# `update`: another process may make the same folder while a job waits, and Snakemake would delete it.
for KIND in filter(lambda kind: kind.record, KINDS.values()):
    FOLDER = f"{RESULTS}/{KIND.place}-{{id}}"
    OUTPUTS = {"record": KIND.record, **KIND.files, **KIND.removable}
    for NAME, FILE in OUTPUTS.items():
        PATH = f"{FOLDER}/{FILE}"
        OUTPUTS[NAME] = update(directory(PATH) if FILE.endswith("/") else PATH)

    rule:
        name:
            KIND.rule
        input:
            JOBS.changed(KIND.name),
            ancient(JOBS.reads),
        output:
            **OUTPUTS,
        log:
            f"{LOGS}/{KIND.log}-{{id}}.log",
        wildcard_constraints:
            id=JOBS.ids(KIND),
        priority: JOBS.priority
        conda:
            f"../../envs/{KIND.environment}.yaml"
        threads: JOBS.resources.threads(KIND.name)
        resources:
            gpu=JOBS.resources.gpus(KIND.name),
            # of a cluster: all GPUs of a training are in one machine
            nodes=1,
            mem_mb=JOBS.resources.memory(KIND.name),
            runtime=JOBS.resources.minutes(KIND.name),
        params:
            kind=KIND.name,
            plan=PLAN,
            folder=FOLDER,
        shell:
            "python -m calgrid job {params.kind} --plan {params.plan:q} --out {params.folder:q}"
            " --threads {threads} --log {log:q} >> {log:q} 2>&1"
