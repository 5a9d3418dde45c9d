# Folders of results, named by options, code and files of users. Inputs are `ancient`, because times
# say nothing of content: `JOBS.changed` compares it. Outputs are `update`: another process may make
# the same folder while a job waits, and Snakemake would delete it.
rule prepare_data:
    input:
        JOBS.changed("data"),
        ancient(JOBS.reads),
    output:
        record=update(f"{DATA}/prepare.json"),
        manifest=update(f"{DATA}/manifest.json"),
    log:
        f"{LOGS}/data/{{image_set}}-{{id}}.log",
    # before those of all runs
    priority: len(JOBS.plan.study.runs) + 1
    conda:
        "../../envs/data.yaml"
    threads: JOBS.resources.threads("data")
    resources:
        mem_mb=JOBS.resources.memory("data"),
        runtime=JOBS.resources.minutes("data"),
    params:
        plan=PLAN,
        folder=DATA,
    shell:
        "python -m calgrid job data --plan {params.plan:q} --out {params.folder:q}"
        " --threads {threads} --log {log:q} >> {log:q} 2>&1"


rule train:
    input:
        JOBS.changed("train"),
        ancient(JOBS.reads),
    output:
        record=update(f"{TRAINED}/train.json"),
        model=update(f"{TRAINED}/model.safetensors"),
        history=update(f"{TRAINED}/history.parquet"),
    log:
        f"{LOGS}/train/{RUN_PATH}-{{id}}.log",
    priority: JOBS.priority
    conda:
        "../../envs/train.yaml"
    threads: JOBS.resources.threads("train")
    resources:
        gpu=JOBS.resources.gpus("train"),
        # of a cluster: all GPUs of a training are in one machine
        nodes=1,
        mem_mb=JOBS.resources.memory("train"),
        runtime=JOBS.resources.minutes("train"),
    params:
        plan=PLAN,
        folder=TRAINED,
    shell:
        "python -m calgrid job train --plan {params.plan:q} --out {params.folder:q}"
        " --threads {threads} --log {log:q} >> {log:q} 2>&1"


rule predict:
    input:
        JOBS.changed("predict"),
        ancient(JOBS.reads),
    output:
        record=update(f"{PREDICTED}/predict.json"),
        logits=update(directory(f"{PREDICTED}/logits")),
    log:
        f"{LOGS}/predict/{RUN_PATH}-{{id}}.log",
    wildcard_constraints:
        # all but those; a pattern of the ids of all predictions would slow down large grids
        id=f"(?!{JOBS.ids('import')}|{JOBS.ids('ensemble')})[0-9a-f]+",
    priority: JOBS.priority
    conda:
        "../../envs/train.yaml"
    threads: JOBS.resources.threads("predict")
    resources:
        gpu=JOBS.resources.gpus("predict"),
        mem_mb=JOBS.resources.memory("predict"),
        runtime=JOBS.resources.minutes("predict"),
    params:
        plan=PLAN,
        folder=PREDICTED,
    shell:
        "python -m calgrid job predict --plan {params.plan:q} --out {params.folder:q}"
        " --threads {threads} --log {log:q} >> {log:q} 2>&1"


rule import_external:
    input:
        JOBS.changed("import"),
        ancient(JOBS.reads),
    output:
        record=update(f"{PREDICTED}/predict.json"),
        logits=update(directory(f"{PREDICTED}/logits")),
    log:
        f"{LOGS}/import/{RUN_PATH}-{{id}}.log",
    wildcard_constraints:
        id=JOBS.ids("import"),
    priority: JOBS.priority
    conda:
        "../../envs/calibrate.yaml"
    threads: 1
    resources:
        mem_mb=JOBS.resources.memory("import"),
        runtime=JOBS.resources.minutes("import"),
    params:
        plan=PLAN,
        folder=PREDICTED,
    shell:
        "python -m calgrid job import --plan {params.plan:q} --out {params.folder:q}"
        " --threads {threads} --log {log:q} >> {log:q} 2>&1"


rule ensemble:
    input:
        JOBS.changed("ensemble"),
        ancient(JOBS.reads),
    output:
        record=update(f"{PREDICTED}/predict.json"),
        logits=update(directory(f"{PREDICTED}/logits")),
    log:
        f"{LOGS}/ensemble/{RUN_PATH}-{{id}}.log",
    wildcard_constraints:
        id=JOBS.ids("ensemble"),
    priority: JOBS.priority
    conda:
        "../../envs/calibrate.yaml"
    threads: 1
    resources:
        mem_mb=JOBS.resources.memory("ensemble"),
        runtime=JOBS.resources.minutes("ensemble"),
    params:
        plan=PLAN,
        folder=PREDICTED,
    shell:
        "python -m calgrid job ensemble --plan {params.plan:q} --out {params.folder:q}"
        " --threads {threads} --log {log:q} >> {log:q} 2>&1"


rule probe:
    input:
        JOBS.changed("probe"),
        ancient(JOBS.reads),
    output:
        record=update(f"{PROBED}/probe.json"),
        table=update(f"{PROBED}/table.parquet"),
    log:
        f"{LOGS}/probe_{{probe}}/{RUN_PATH}-{{id}}.log",
    priority: JOBS.priority
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
        "python -m calgrid job probe --plan {params.plan:q} --out {params.folder:q}"
        " --threads {threads} --log {log:q} >> {log:q} 2>&1"


rule calibrate:
    input:
        JOBS.changed("calibrate"),
        ancient(JOBS.reads),
    output:
        record=update(f"{CALIBRATED}/calibrate.json"),
        metrics=update(f"{CALIBRATED}/metrics.parquet"),
    log:
        f"{LOGS}/calibrate/{RUN_PATH}-{{id}}.log",
    priority: JOBS.priority
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
        "python -m calgrid job calibrate --plan {params.plan:q} --out {params.folder:q}"
        " --threads {threads} --log {log:q} >> {log:q} 2>&1"
