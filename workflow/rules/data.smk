rule prepare_data:
    input:
        base=ancient(JOBS.data_base),
    output:
        record=update(f"{DATA}/prepare.json"),
        manifest=update(f"{DATA}/manifest.json"),
    log:
        f"{LOGS}/data/{{image_set}}-{{id}}.log",
    conda:
        "../../envs/data.yaml"
    threads: JOBS.resources.threads("prepare")
    resources:
        mem_mb=JOBS.resources.memory("prepare"),
        runtime=JOBS.resources.minutes("prepare"),
    params:
        plan=PLAN,
        folder=DATA,
        root=JOBS.data_root or ".",
    shell:
        "python -m calgrid data --plan {params.plan:q} --out {params.folder:q}"
        " --data-root {params.root:q} --threads {threads} --log {log:q} >> {log:q} 2>&1"
