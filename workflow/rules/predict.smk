rule predict:
    input:
        BOOK.repair_trigger(f"{RUN}/predict.json"),
        model=f"{RUN}/train.json",
        data=BOOK.predict_data,
    output:
        update(f"{RUN}/predict.json"),
    log:
        f"{LOGS}/predict/{KEY}.log",
    benchmark:
        f"{TIMES}/predict/{KEY}.tsv"
    wildcard_constraints:
        protocol=BOOK.trained_protocols,
    conda:
        "../../envs/train.yaml"
    threads: 1
    resources:
        gpu=BOOK.gpus,
        mem_mb=BOOK.needs.predict_memory,
        runtime=60,
    params:
        folder=BOOK.run_folder,
        data=f"{RESULTS}/data/{{dataset}}",
        spec=BOOK.predict_spec,
        # Parameters of a function with `input` are not compared: a study with fewer families runs nothing again.
        families=lambda wildcards, input: BOOK.predict_families(wildcards),
    shell:
        "python -m calgrid predict --spec {params.spec:q} --model {params.folder:q}/model.safetensors"
        " --data {params.data:q} --shifts {params.families} --out {params.folder:q}"
        " --threads {threads} --log {log:q} >> {log:q} 2>&1"
