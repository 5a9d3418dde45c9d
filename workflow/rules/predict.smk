# Snakemake fixes a rule's outputs when it reads the rule, and which shift families there are depends on the data set:
# one rule for each group of runs with the same files.
for group in BOOK.predict_groups():
    FOLDER = f"{RESULTS}/runs/{group.protocol}/{group.dataset}/{{backbone}}/{{method}}/seed{{seed}}"
    NAME = f"{group.protocol}/{group.dataset}/{{backbone}}/{{method}}/seed{{seed}}"

    rule:
        name:
            group.name
        input:
            model=f"{FOLDER}/model.safetensors",
            data=BOOK.predict_data(group),
        output:
            BOOK.predict_outputs(group),
        log:
            f"{LOGS}/predict/{NAME}.log",
        benchmark:
            f"{TIMES}/predict/{NAME}.tsv"
        conda:
            "../../envs/train.yaml"
        threads: 1
        resources:
            gpu=BOOK.gpus,
            mem_mb=BOOK.needs.predict_memory(group.dataset),
            runtime=60,
        params:
            folder=BOOK.run_folder(group),
            data=BOOK.data_folder(group),
            spec=BOOK.predict_spec(group),
        shell:
            "python -m calgrid predict --spec {params.spec:q} --model {input.model:q} --data {params.data:q}"
            " --out {params.folder:q} --threads {threads} --outputs {output:q} >> {log:q} 2>&1"
