//! From what was typed, set and found to what will run.

use std::num::NonZeroUsize;

use accelerate_plan::{
    env::{CONFIG_DS_FIELDS, EnvOverlay, Environment, PYTHONPATH, PYTHONUNBUFFERED, WORLD_INFO},
    launch::{
        Found, LaunchPlan, Layout, Nodes, Restarts, Role, Strategy, Threads, check, check_mesh,
        cpu, environment,
    },
    settings::{self, Origin, Settings, Sourced},
    topology::{LOOPBACK, Rendezvous},
};

use super::{
    detected,
    handling::{Handling, RUN_ID},
    hosts::{
        self,
        deepspeed::{Route, node::NodeShare},
    },
    machines::{self, Machines, Talk, Wish},
    placement::Placement,
    port::Reservation,
    program::{self, Kind, Located},
    rendezvous,
    step::{self, Step},
    streams::Streams,
    through, unused,
};
use crate::{
    args::LaunchArgs,
    configuration::Configuration,
    error::{Error, Result},
    machine::{Cores, Devices, NcclWorkaround, Numa, Root, nccl_workaround},
    report,
};

/// Everything that is decided before the first process starts.
pub(crate) struct Resolved {
    pub(crate) settings: Settings,
    pub(crate) strategy: Strategy,
    pub(crate) way: Way,
    pub(crate) handling: Handling,
    /// What else was found out or decided, one line each.
    pub(crate) notes: Vec<String>,
    /// What was given and changes nothing, one line each.
    pub(crate) unused: Vec<String>,
}

/// Who starts which processes.
pub(crate) enum Way {
    /// This launcher all of them, or one that is part of a job that something else started.
    Here { plan: Box<LaunchPlan>, port: Port },
    /// This launcher those of this machine, others those of other machines.
    Machines(Box<Machines>),
    /// Another launcher, which is the only process of this plan.
    Through {
        plan: Box<LaunchPlan>,
        /// Keeps the port of rank 0, if that runs here and nobody named a port.
        reservation: Option<Reservation>,
    },
}

/// The port at which the processes of one machine meet.
pub(crate) struct Port {
    /// Keeps it away from other jobs while this lives.
    pub(crate) reservation: Option<Reservation>,
    /// Whether the user named it.
    pub(crate) is_given: bool,
}

impl Way {
    /// What runs on this machine, as far as it is known before others have been met.
    pub(crate) fn plan(&self) -> &LaunchPlan {
        match self {
            Self::Here { plan, .. } | Self::Through { plan, .. } => plan,
            Self::Machines(machines) => machines.plan(),
        }
    }
}

/// Decides everything.
///
/// # Errors
/// If something cannot be understood, is missing, or excludes something else.
pub(crate) fn resolve(args: &LaunchArgs, env: &Environment) -> Result<Resolved> {
    let configuration = Configuration::read(&args.settings.0, args.config_file.as_deref(), env)?;
    if !args.quiet {
        configuration.tell();
    }
    let step = Step::read(env)?;
    let mut settings = configuration.settings(step.detected()?);
    step.settle(&mut settings)?;
    let strategy = here(Strategy::sourced(&settings)?)?;
    check(&settings, strategy)?;
    Decision::new(args, env, settings, strategy, &step)?.decide(&step)
}

/// The kind of job, if it can be started from here.
fn here(Sourced { value, origin }: Sourced<Strategy>) -> Result<Strategy> {
    let what = match value {
        Strategy::Tpu => "launching on TPUs",
        Strategy::SageMaker => "launching on Amazon SageMaker",
        _ => return Ok(value),
    };
    Err(Error::NotSupported { what, origin })
}

struct Decision<'a> {
    args: &'a LaunchArgs,
    env: &'a Environment,
    settings: Settings,
    strategy: Strategy,
    cpu: bool,
    devices: Devices,
    layout: Layout,
    /// What `rdzv_conf` says.
    rendezvous: rendezvous::Options,
    notes: Vec<String>,
    unused: Vec<String>,
}

impl<'a> Decision<'a> {
    fn new(
        args: &'a LaunchArgs,
        env: &'a Environment,
        mut settings: Settings,
        strategy: Strategy,
        step: &Step,
    ) -> Result<Self> {
        let devices = Devices::read(&Root::machine(), env)?;
        let cpu = cpu(&settings).value;
        let layout = match step {
            Step::EachTaskIsARank(cluster) => step::one_of_many(&settings, cluster)?,
            _ => Layout::of(
                &settings,
                cpu,
                Found {
                    devices: devices.count(),
                },
            )?,
        };
        if let Some(world_size) = world_size(&settings, step, &layout, strategy) {
            check_mesh(&settings, &world_size)?;
        }
        let text = settings.get(&settings::RDZV_CONF).unwrap_or_default();
        let rendezvous = rendezvous::Options::parse(&text)?;
        let mut unused = unused::lines(&settings, strategy, &rendezvous);
        if args.output.tee.is_some() && args.output.log_dir.is_none() {
            unused.push("`--tee`: no files are written without `--log_dir`".to_owned());
        }
        detected::note_processes(&mut settings, step, &layout);
        Ok(Self {
            args,
            env,
            settings,
            strategy,
            cpu,
            devices,
            layout,
            rendezvous,
            unused,
            notes: step.describe().into_iter().collect(),
        })
    }

    fn decide(mut self, step: &Step) -> Result<Resolved> {
        let is_several = self.layout.local.get() > 1 || self.layout.num_machines.get() > 1;
        let located = program::locate(&self.args.command, kind(self.args)?, self.env, is_several)?;
        let mut shared = self.shared()?;
        if located.needs_unbuffered && self.env.get(&PYTHONUNBUFFERED)?.is_none() {
            shared.set(&PYTHONUNBUFFERED, &"1".to_owned());
        }
        let mut share = None;
        let threads = self.threads()?;
        if matches!(step, Step::Alone) {
            let port = self.port_for_mpi()?;
            match self.route(&located, &shared, threads, port.as_ref())? {
                Route::Agent => {}
                Route::Outer(outer) => return self.through(outer, port),
                Route::Node(node) => share = Some(self.take_share(node, &mut shared)),
            }
        }
        // A host file may have changed how many processes there are.
        let threads = self.threads()?;
        let processes = step.tasks_here().unwrap_or(self.layout.local);
        detected::note_threads(&mut self.settings, &threads, processes);
        let handling = self.handling()?;
        let nodes = Nodes::one(self.layout.local);
        let template = LaunchPlan {
            program: located.program,
            role: Role::of_all(self.role(), &nodes),
            nodes,
            rendezvous: share.clone().unwrap_or_default(),
            cpu: self.cpu,
            shared,
            threads,
            store_is_served: false,
            run_id: RUN_ID.to_owned(),
            restarts: Restarts {
                count: 0,
                allowed: handling.max_restarts,
            },
        };
        let way = self.way(template, step, share)?;
        Ok(Resolved {
            settings: self.settings,
            strategy: self.strategy,
            way,
            handling,
            notes: self.notes,
            unused: self.unused,
        })
    }

    /// A host file says how many processes run here, and on which devices.
    fn take_share(&mut self, share: NodeShare, shared: &mut EnvOverlay) -> Rendezvous {
        self.layout.local = share.num_processes().unwrap_or(NonZeroUsize::MIN);
        self.layout.machine_rank = Some(share.node_rank);
        if !self.cpu {
            shared.set(self.devices.visible_variable(), &share.visible_devices());
        }
        share.master
    }

    /// Ranks that MPI starts on this machine alone meet at a free port, if nobody named one.
    fn port_for_mpi(&self) -> Result<Option<Reservation>> {
        let hostfile = self.settings.get(&settings::MPIRUN_HOSTFILE);
        let is_here =
            self.layout.num_machines.get() == 1 && hostfile.is_some_and(|path| !path.is_empty());
        match self.settings.get(&settings::MAIN_PROCESS_PORT).unwrap_or(0) {
            0 if is_here => Reservation::new(0).map(Some),
            _ => Ok(None),
        }
    }

    fn route(
        &self,
        located: &Located,
        shared: &EnvOverlay,
        threads: Threads,
        port: Option<&Reservation>,
    ) -> Result<Route> {
        through::route(&through::Question {
            settings: &self.settings,
            strategy: self.strategy,
            layout: &self.layout,
            cpu: self.cpu,
            located,
            command: &self.args.command,
            shared,
            threads,
            port: port.map(Reservation::port),
            env: self.env,
        })
    }

    fn way(&self, mut plan: LaunchPlan, step: &Step, met_at: Option<Rendezvous>) -> Result<Way> {
        if self.layout.num_machines.get() > 1 {
            let talk = Talk {
                quiet: self.args.quiet,
                debug: self.settings.is_on(&settings::DEBUG),
            };
            let wish = Wish {
                settings: &self.settings,
                strategy: self.strategy,
                layout: &self.layout,
                plan: &plan,
                options: &self.rendezvous,
            };
            let request = machines::request(&wish, met_at)?;
            return Ok(Way::Machines(Box::new(Machines::new(plan, request, talk))));
        }
        if let Step::EachTaskIsARank(cluster) = step {
            plan.shared
                .extend(&step::place(cluster, &self.settings, self.env)?);
        }
        let port = self.port()?;
        if let Some(reservation) = &port.reservation {
            plan.rendezvous = Rendezvous {
                addr: self
                    .settings
                    .get(&settings::MAIN_PROCESS_IP)
                    .unwrap_or(LOOPBACK.to_owned()),
                port: reservation.port(),
            };
        }
        Ok(Way::Here {
            plan: Box::new(plan),
            port,
        })
    }

    /// A port is needed where several processes meet on this machine.
    fn port(&self) -> Result<Port> {
        let given = self.settings.get(&settings::MAIN_PROCESS_PORT).unwrap_or(0);
        let reservation = match self.layout.local.get() {
            1 => None,
            _ => Some(Reservation::new(given)?),
        };
        Ok(Port {
            reservation,
            is_given: given != 0,
        })
    }

    /// Another launcher starts the ranks; to us it is a job of one process.
    fn through(
        mut self,
        outer: hosts::Outer,
        reservation: Option<Reservation>,
    ) -> Result<Resolved> {
        self.notes.extend(outer.notes.iter().cloned());
        self.layout.local = NonZeroUsize::MIN;
        let handling = self.handling()?;
        let (program, shared) = match self.args.dry_run {
            true => (outer.program, outer.overlay),
            false => hosts::outer_program(outer)?,
        };
        let nodes = Nodes::one(NonZeroUsize::MIN);
        let plan = LaunchPlan {
            program,
            role: Role::of_all(self.role(), &nodes),
            nodes,
            rendezvous: Rendezvous::default(),
            cpu: false,
            shared,
            threads: Threads::Inherited,
            store_is_served: false,
            run_id: RUN_ID.to_owned(),
            restarts: Restarts {
                count: 0,
                allowed: handling.max_restarts,
            },
        };
        Ok(Resolved {
            settings: self.settings,
            strategy: self.strategy,
            way: Way::Through {
                plan: Box::new(plan),
                reservation,
            },
            handling,
            notes: self.notes,
            unused: self.unused,
        })
    }

    fn role(&self) -> String {
        self.settings.get(&settings::ROLE).unwrap_or_default()
    }

    /// What every process is told besides its place.
    fn shared(&self) -> Result<EnvOverlay> {
        let variable = self.devices.visible_variable().name();
        let mut shared = environment(&self.settings, self.strategy, self.cpu, Some(variable));
        let workaround = nccl_workaround(&Root::machine(), &self.devices, self.env)?;
        if let Some(NcclWorkaround { overlay, why }) = workaround {
            shared.extend(&overlay);
            if !self.args.quiet {
                report::note(&why, &[]);
            }
        }
        if self.strategy == Strategy::DeepSpeed {
            let folder = std::env::current_dir().unwrap_or_default();
            let folder = folder.display().to_string();
            let old = self.env.get(&PYTHONPATH)?.unwrap_or_default();
            // Python takes an empty place for the working folder.
            let old = old.split(':').filter(|place| !place.is_empty());
            let places: Vec<_> = old.chain([folder.as_str()]).collect();
            shared.set(&PYTHONPATH, &places.join(":"));
            // The launcher that reached this machine has read the file, not this one.
            let is_reached = self.env.get(&WORLD_INFO)?.is_some();
            if let (true, Some(fields)) = (is_reached, self.env.get(&CONFIG_DS_FIELDS)?) {
                shared.set(&CONFIG_DS_FIELDS, &fields);
            }
        }
        Ok(shared)
    }

    fn threads(&self) -> Result<Threads> {
        let given = self.settings.given(&settings::NUM_CPU_THREADS_PER_PROCESS);
        if let Some(given) = given.filter(|given| matches!(given.origin, Origin::Flag(_))) {
            return Ok(Threads::Flag(given.value));
        }
        Ok(Cores::read(&Root::machine()).share(self.env, self.layout.local)?)
    }

    fn handling(&self) -> Result<Handling> {
        let num_processes = self.layout.local.get();
        let output = &self.args.output;
        let filter = output.local_ranks_filter.iter().flatten().copied();
        if let Some(rank) = filter.clone().find(|rank| *rank >= num_processes) {
            return Err(Error::FilterOutOfRange {
                rank,
                num_processes,
            });
        }
        if let Some(rank) = output.tee.as_ref().and_then(Streams::highest_rank)
            && rank >= num_processes
        {
            return Err(Error::TeeOutOfRange {
                rank,
                num_processes,
            });
        }
        let is_several = num_processes > 1 || self.layout.num_machines.get() > 1;
        let restarts = self.settings.get(&settings::MAX_RESTARTS).unwrap_or(0);
        Ok(Handling {
            grace: output.grace_period,
            max_restarts: usize::try_from(restarts).unwrap_or(usize::MAX),
            time_limit: output.timeout,
            prefix: !output.no_prefix && is_several,
            shown: output.local_ranks_filter.clone(),
            log_dir: output.log_dir.clone(),
            tee: output.tee.clone(),
            report: output.report.clone(),
            watch: output.watch.clone(),
            placement: self.placement(),
            quiet: self.args.quiet,
            debug: self.settings.is_on(&settings::DEBUG),
            ..Handling::default()
        })
    }

    fn placement(&self) -> Option<Placement> {
        self.settings
            .is_on(&settings::ENABLE_CPU_AFFINITY)
            .then(|| {
                let root = Root::machine();
                let cores = Cores::read(&root);
                let numa = Numa::read(&root, &cores.allowed, &self.devices);
                Placement::new(numa.placement(self.layout.local.get()))
            })
    }
}

/// Processes of the job on all machines, where that is known before machines have met or another
/// launcher was asked.
fn world_size(
    settings: &Settings,
    step: &Step,
    layout: &Layout,
    strategy: Strategy,
) -> Option<Sourced<NonZeroUsize>> {
    if let Step::EachTaskIsARank(cluster) = step {
        let world = cluster.world_size();
        return Some(Sourced {
            value: world.value,
            origin: Origin::Variable(world.variable),
        });
    }
    if let Some(value) = layout.total {
        let origin = settings.origin(&settings::NUM_PROCESSES).clone();
        return Some(Sourced { value, origin });
    }
    let may_have_hosts =
        strategy == Strategy::DeepSpeed || settings.given(&settings::MPIRUN_HOSTFILE).is_some();
    (layout.num_machines.get() == 1 && !may_have_hosts).then(|| Sourced {
        value: layout.local,
        origin: layout.origin.clone(),
    })
}

fn kind(args: &LaunchArgs) -> Result<Kind> {
    match (args.module, args.no_python) {
        (true, true) => Err(Error::ModuleWithoutPython),
        (true, false) => Ok(Kind::PythonModule),
        (false, true) => Ok(Kind::AsIs),
        (false, false) => Ok(Kind::Recognise),
    }
}
