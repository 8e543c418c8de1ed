//! What cannot be is told, and by how much.

use accelerate::nn::Module;
use accelerate::optim::{Lamb, LambConfig};
use accelerate::{Accelerator, Result};
use accelerate_plan::parallel::{
    AfterForward, LossScaling, Mesh, ParallelPlan, Sharded, WrapPolicy,
};
use accelerate_testkit::{Rank, ranks};

use crate::job::{Job, Setup, by_class, count, groups, plan};

fn refused(rank: Rank, plan: ParallelPlan) -> String {
    let made = Job::new(rank, &Setup::default().by(plan));
    made.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_class_that_is_not_there_is_told_with_those_that_are() {
    ranks(&[2], |rank| -> Result<()> {
        let classes = ["Block", "LinearLayer"].map(str::to_owned).to_vec();
        let wrap = WrapPolicy::Classes(classes);
        let text = refused(rank, plan(rank, Sharded::Parameters, wrap));
        assert!(
            text.contains("no module of the model has class `LinearLayer`"),
            "{text}"
        );
        assert!(text.contains("`Block`, `Embedding`"), "{text}");
        assert!(text.contains("did you mean `Linear`?"), "{text}");
        Ok(())
    });
}

#[test]
fn degrees_that_do_not_make_the_job_are_told_as_an_equation() {
    ranks(&[2], |rank| -> Result<()> {
        let plan = ParallelPlan::new(Mesh::new(count(2), count(3)), Sharded::Parameters);
        let text = refused(rank, plan);
        assert!(text.contains("replicate x shard = 2 ranks"), "{text}");
        let mut plan = self::plan(rank, Sharded::Parameters, by_class());
        plan.after_forward = AfterForward::ReleaseTo(count(3));
        let second = refused(rank, plan);
        assert!(second.contains("a divisor of the 2 ranks"), "{second}");
        assert!(text.contains("replicate 2 x shard 3"), "{text}");
        assert!(text.contains("= 6"), "{text}");
        Ok(())
    });
}

#[test]
fn layers_that_are_to_be_cut_are_no_copies_of_a_model() {
    ranks(&[2], |rank| -> Result<()> {
        let mesh = Mesh {
            tensor: count(2),
            ..Mesh::replicated(count(1))
        };
        let text = refused(rank, ParallelPlan::new(mesh, Sharded::Parameters));
        assert!(text.contains("2 x tensor"), "{text}");
        Ok(())
    });
}

#[test]
fn what_this_version_cannot_do_is_told_at_once() {
    ranks(&[2], |rank| -> Result<()> {
        let mut plan = plan(rank, Sharded::Parameters, by_class());
        plan.precision.loss_scaling = LossScaling::Fixed(8.0);
        let text = refused(rank, plan);
        assert!(text.contains("loss scaling"), "{text}");
        Ok(())
    });
}

#[test]
fn an_optimizer_that_looks_at_whole_parameters_is_refused() {
    ranks(&[2], |rank| -> Result<()> {
        let accelerator = Accelerator::builder()
            .cpu(true)
            .parallel_plan(plan(rank, Sharded::OptimizerState, by_class()))
            .build()?;
        let model = crate::job::model(&Setup::default())?;
        let optimizer = Lamb::new(groups(&model), LambConfig::default())?;
        let error = accelerator.prepare(optimizer).map(|_| ()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("`Lamb`, which looks at whole"), "{text}");
        Ok(())
    });
}

#[test]
fn a_backward_pass_past_the_accelerator_is_told_at_the_next_step() {
    ranks(&[2], |rank| -> Result<()> {
        let setup = Setup::default().by(plan(rank, Sharded::Parameters, by_class()));
        let job = Job::new(rank, &setup)?;
        let ids = crate::job::batch(0, rank);
        crate::job::loss(&job.model, &ids)?.f_backward()?;
        let text = crate::job::loss(&job.model, &ids).unwrap_err().to_string();
        assert!(text.contains("`Accelerator::backward`"), "{text}");
        // What the pass began is still on its way to the other rank.
        job.accelerator.wait_for_everyone()
    });
}

#[test]
fn a_model_with_nothing_to_train_is_refused() {
    ranks(&[2], |rank| -> Result<()> {
        let accelerator = Accelerator::builder()
            .cpu(true)
            .parallel_plan(plan(rank, Sharded::Parameters, by_class()))
            .build()?;
        let model = crate::job::model(&Setup::default())?;
        model.set_requires_grad(false)?;
        let text = accelerator
            .prepare(model)
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(text.contains("nothing to train"), "{text}");
        Ok(())
    });
}
