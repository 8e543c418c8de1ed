//! The questions about jobs on Amazon SageMaker.

use super::{
    ask::{Ask, question},
    cluster::{PRECISIONS, dynamo},
    error::Result,
    record::{self, Section},
};

const PARALLEL_INSTANCES: [&str; 3] = ["ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4dn.24xlarge"];

/// Asks everything about a job on SageMaker.
///
/// # Source
/// The questionnaire of Accelerate 1.15. Differs: nothing here talks to AWS. Keys are not asked for,
/// since they would serve for nothing before the launch and must not be saved, and the role must
/// exist already. Paths and image names keep their capital letters.
pub(super) fn interview(ask: &mut dyn Ask) -> Result<Section> {
    let mut record = record::sagemaker_defaults();
    credentials(ask, &mut record)?;
    let q = question("Which AWS region?", "where the jobs run");
    record.set("region", ask.text(q, Some("us-east-1"))?);
    let q = question(
        "Which IAM role runs the training jobs?",
        "its name; the role must exist and trust sagemaker.amazonaws.com",
    );
    record.set("iam_role_name", ask.text(q, None)?);
    files(ask, &mut record)?;
    let parallel = distributed_mode(ask, &mut record)?;
    let with_dynamo = dynamo::interview(ask, &mut record)?;
    machines(ask, parallel, &mut record)?;
    let q = question(
        "Compute in lower precision?",
        "bf16 where the device has it, else fp16",
    );
    let precision = ask.choice(q, &PRECISIONS, 0)?;
    record.set("mixed_precision", precision);
    if with_dynamo && precision == "no" {
        ask.remark("with torch.compile and full precision, TF32 is turned on when launching");
    }
    Ok(record)
}

fn credentials(ask: &mut dyn Ask, record: &mut Section) -> Result<()> {
    let q = question(
        "How does the launch prove who you are to AWS?",
        "a profile of the AWS configuration, or a pair of keys",
    );
    if ask.menu(q, &["AWS profile", "AWS keys"], 0)? == 0 {
        let q = question("Which AWS profile?", "its name in `~/.aws/config`");
        record.set("profile", ask.text(q, Some("default"))?);
    } else {
        ask.remark(
            "keys are not saved: give them to `accelerate launch` with `--aws_access_key_id` and \
             `--aws_secret_access_key`",
        );
    }
    Ok(())
}

fn files(ask: &mut dyn Ask, record: &mut Section) -> Result<()> {
    for (key, wanted, which) in [
        (
            "image_uri",
            question(
                "Use a Docker image of your own?",
                "`no` takes the one of SageMaker",
            ),
            question("Which Docker image?", "its address in a registry"),
        ),
        (
            "sagemaker_inputs_file",
            question(
                "Give the job input channels?",
                "places of data, listed in a file",
            ),
            question(
                "Which file lists the inputs?",
                "tab-separated columns channel_name and data_location",
            ),
        ),
        (
            "sagemaker_metrics_file",
            question(
                "Let SageMaker collect metrics?",
                "patterns for the output of the program, listed in a file",
            ),
            question(
                "Which file lists the metrics?",
                "tab-separated columns metric_name and metric_regex",
            ),
        ),
    ] {
        if ask.yes_no(wanted, false)? {
            record.set(key, ask.text(which, None)?);
        }
    }
    Ok(())
}

/// Returns whether several devices work together.
fn distributed_mode(ask: &mut dyn Ask, record: &mut Section) -> Result<bool> {
    let q = question(
        "How is the training distributed?",
        "the first one means a single process",
    );
    let options = ["No distributed training", "Data parallelism"];
    let parallel = ask.menu(q, &options, 0)? == 1;
    let name = if parallel { "DATA_PARALLEL" } else { "NO" };
    record.set("distributed_type", name);
    Ok(parallel)
}

fn machines(ask: &mut dyn Ask, parallel: bool, record: &mut Section) -> Result<()> {
    let q = question(
        "Which type of EC2 instance?",
        "it must be available in the region",
    );
    if !parallel {
        let instance = ask.text(q, Some("ml.p3.2xlarge"))?;
        record.set("ec2_instance_type", instance.to_ascii_lowercase());
        return Ok(());
    }
    let instance = ask.choice(q, &PARALLEL_INSTANCES, 0)?;
    record.set("ec2_instance_type", instance);
    let q = question(
        "Should collective operations be checked while running?",
        "finds processes that disagree instead of waiting for them, but is slower",
    );
    record.set("debug", ask.yes_no(q, false)?);
    let q = question("How many machines take part?", "instances of that type");
    record.set("num_machines", ask.whole(q, 1..=i64::MAX, Some(1))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use accelerate_plan::config::{Value, yaml};

    use super::{super::ask::Scripted, *};

    fn written(answers: &[(&'static str, &'static str)]) -> String {
        let mut ask = Scripted::new(answers);
        let record = interview(&mut ask).unwrap();
        assert!(ask.left().is_empty(), "never asked: {:?}", ask.left());
        yaml::write(&Value::from(record))
    }

    #[test]
    fn one_process_by_default() {
        assert_eq!(
            written(&[("IAM role", "trainer")]),
            "\
base_job_name: accelerate-sagemaker-1
compute_environment: AMAZON_SAGEMAKER
debug: false
distributed_type: 'NO'
ec2_instance_type: ml.p3.2xlarge
enable_cpu_affinity: false
gpu_ids: all
iam_role_name: trainer
mixed_precision: 'no'
num_machines: 1
profile: default
py_version: py38
pytorch_version: 1.10.2
region: us-east-1
transformers_version: 4.17.0
use_cpu: false
"
        );
    }

    #[test]
    fn data_parallel_jobs_choose_a_large_instance() {
        let text = written(&[
            ("prove who you are", "AWS keys"),
            ("AWS region", "eu-west-1"),
            ("IAM role", "trainer"),
            ("Docker image of your own", "yes"),
            ("Which Docker image", "example.com/Image:Tag"),
            ("input channels", "yes"),
            ("lists the inputs", "Data/inputs.tsv"),
            ("collect metrics", "yes"),
            ("lists the metrics", "Data/metrics.tsv"),
            ("distributed", "Data parallelism"),
            ("torch dynamo", "yes"),
            ("EC2 instance", "ml.p4dn.24xlarge"),
            ("checked while running", "yes"),
            ("How many machines", "3"),
            ("lower precision", "fp16"),
        ]);
        for line in [
            "distributed_type: DATA_PARALLEL",
            "ec2_instance_type: ml.p4dn.24xlarge",
            "image_uri: example.com/Image:Tag",
            "sagemaker_inputs_file: Data/inputs.tsv",
            "sagemaker_metrics_file: Data/metrics.tsv",
            "debug: true",
            "num_machines: 3",
            "region: eu-west-1",
            "mixed_precision: fp16",
            "  dynamo_backend: INDUCTOR",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "no {line} in {text}"
            );
        }
        assert!(!text.contains("profile"), "{text}");
    }
}
