//! A soak test: disturbs a graph server and training jobs by unauthenticated clients, invalid requests and crashes, and
//! checks that they do not hang, exit or exceed a memory limit: `soak PROGRAM MINUTES`, where PROGRAM is `kiln`. The
//! ranks use the engine `store`.
//!
//! One server runs all the time; jobs of two ranks run one after the other. Each process is limited to 256 descriptors.
//! Every 30 s, a line shows memory and descriptors of the server, and after each job, a line shows the maxima of its
//! rank 0. The exit status is 0 if the server did not exit, no memory limit was exceeded, every job ended with the
//! weights of an undisturbed job, every sample of a well-behaved client equals that of the whole graph, and every
//! disturbance ended as documented.

mod disturb;
mod job;
mod server;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kiln_benches::Result;

/// The limit on the resident memory of the server and of rank 0, which is several times the memory that they need.
const MAX_RSS_BYTES: usize = 256 << 20;

/// The state that all threads of the soak test share.
struct Soak {
    program: PathBuf,
    server: String,
    /// The address of the running job's rank 0; `None` between jobs.
    job: Mutex<Option<String>>,
    stop: AtomicBool,
    failures: Mutex<Vec<String>>,
}

impl Soak {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn job_address(&self) -> Option<String> {
        self.job.lock().ok()?.clone()
    }

    fn fail(&self, text: String) {
        eprintln!("FAILED: {text}");
        if let Ok(mut failures) = self.failures.lock() {
            failures.push(text);
        }
    }

    /// Waits for this time, or until the soak test ends.
    fn pause(&self, time: Duration) {
        let started = Instant::now();
        while !self.is_over() && started.elapsed() < time {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A disturbance, with the number of times that it was completed.
struct Activity {
    name: &'static str,
    run: disturb::Disturbance,
    count: AtomicUsize,
}

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve", folder] => server::serve(folder.as_ref()),
        ["sample", address] => server::sample_until_killed(address),
        [program, minutes] => run(program.into(), minutes.parse()?),
        _ => Err("expected the path of the program kiln and a number of minutes".into()),
    }
}

fn run(program: PathBuf, minutes: f64) -> Result {
    let folder = std::env::temp_dir().join(format!("kiln-soak-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let expected = job::undisturbed(&program, &folder)?;
    let (server, whole) = server::start(&folder)?;
    let soak = Soak {
        program,
        server: server.address.clone(),
        job: Mutex::default(),
        stop: AtomicBool::new(false),
        failures: Mutex::default(),
    };
    let activities: Vec<Activity> = disturb::DISTURBANCES
        .iter()
        .map(|(name, run)| Activity { name, run: *run, count: AtomicUsize::new(0) })
        .collect();
    let time = Duration::from_secs_f64(60.0 * minutes);
    let n_jobs = AtomicUsize::new(0);
    let n_samples = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for activity in &activities {
            scope.spawn(|| repeat(&soak, activity));
        }
        scope.spawn(|| server::sample_and_compare(&soak, &whole, &n_samples));
        scope.spawn(|| job::repeat(&soak, &folder, &expected, &n_jobs));
        let started = Instant::now();
        while started.elapsed() < time {
            soak.pause(Duration::from_secs(30).min(time));
            let done: Vec<String> = activities
                .iter()
                .map(|activity| format!("{} {}", activity.name, activity.count.load(Ordering::Relaxed)))
                .collect();
            let jobs = n_jobs.load(Ordering::Relaxed);
            let samples = n_samples.load(Ordering::Relaxed);
            let used = server.usage();
            let at = started.elapsed().as_secs();
            if MAX_RSS_BYTES < used.rss_bytes {
                soak.fail(format!("the server exceeded the memory limit: {used}"));
            }
            println!("{at} s: server {used}; {jobs} jobs, {samples} samples; {}", done.join(", "));
            if !server.is_alive() {
                soak.fail("the server has exited".to_owned());
                break;
            }
        }
        soak.stop.store(true, Ordering::SeqCst);
    });
    let failures = soak.failures.into_inner().unwrap_or_default();
    drop(server);
    std::fs::remove_dir_all(&folder)?;
    match failures.len() {
        0 => Ok(()),
        n_failures => Err(format!("{n_failures} failures, the first: {}", failures[0]).into()),
    }
}

fn repeat(soak: &Soak, activity: &Activity) {
    while !soak.is_over() {
        match (activity.run)(soak) {
            Ok(()) => activity.count.fetch_add(1, Ordering::Relaxed),
            Err(error) => return soak.fail(format!("the disturbance `{}` failed: {error}", activity.name)),
        };
    }
}
