//! The loaders of minibatches and the iterators of their epochs.

use std::mem::ManuallyDrop;
use std::time::Duration;

use kiln::graph::{LinkId, NodeId};
use kiln::loader::{self as rust, LinkBatcher, Loader};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array;
use crate::batch::Layout;
use crate::batcher::{BatchArrays, InputBatcher, PairBatcher, SubgraphBatcher};
use crate::dataset::Dataset;
use crate::error;
use crate::guard::{self, Process};
use crate::links::LinkSettings;
use crate::settings::LoaderSettings;

/// The time after which a wait for a batch looks for signals, such as that of Ctrl-C.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// A loader of minibatches of nodes.
#[pyclass(frozen, module = "kiln._kiln")]
pub(crate) struct NodeLoader {
    loader: Loader<InputBatcher>,
    common: Common,
}

/// A loader of minibatches of links.
#[pyclass(frozen, module = "kiln._kiln")]
pub(crate) struct LinkLoader {
    loader: Loader<PairBatcher>,
    common: Common,
}

/// What the loaders of nodes and of links have in common.
struct Common {
    settings: LoaderSettings,
    layout: Layout,
    process: Process,
}

#[pymethods]
impl NodeLoader {
    /// Creates a loader of the nodes `inputs` of a type, which are numbered within it.
    #[new]
    fn new(
        py: Python<'_>,
        data: &Dataset,
        node_type: usize,
        inputs: &Bound<'_, PyAny>,
        settings: LoaderSettings,
    ) -> PyResult<Self> {
        let numbers = array::ids(inputs, "input_nodes")?;
        let layout = Layout::of(data.data());
        guard::run(py, || {
            let range = data.data().graph.types().range(node_type);
            let n_nodes = range.len();
            if let Some(position) = numbers.iter().position(|number| n_nodes <= *number as usize) {
                let number = numbers[position];
                return Err(PyValueError::new_err(format!(
                    "input_nodes: entry {position} is node {number}, but its type has {n_nodes} nodes"
                )));
            }
            let positions = (0..numbers.len() as u32).map(NodeId).collect();
            let inputs = numbers.iter().map(|number| NodeId(range.start + number)).collect();
            let sampler = settings.sampler(data.data(), None)?;
            let nodes = SubgraphBatcher::new(data.data(), data.origins(), sampler, settings.subgraph);
            let batcher = InputBatcher { nodes, inputs };
            let items = settings.items(positions)?;
            let loader = Loader::new(items, batcher, settings.threads()).map_err(error::loader)?;
            Ok(Self { loader, common: Common { settings, layout, process: Process::current() } })
        })
    }

    /// Returns the number of batches of this rank in an epoch.
    fn n_steps(&self) -> PyResult<usize> {
        Ok(self.loader.n_steps(self.common.settings.phase(0)?))
    }

    /// Starts an epoch at a step.
    fn epoch(&self, py: Python<'_>, epoch: u64, first_step: usize) -> PyResult<Batches> {
        self.common.process.check()?;
        let phase = self.common.settings.phase(epoch)?;
        let batches = guard::run(py, || Ok(Kind::Nodes(self.loader.epoch_from(phase, first_step))))?;
        Ok(Batches::new(batches, &self.common))
    }
}

#[pymethods]
impl LinkLoader {
    /// Creates a loader of links.
    #[new]
    fn new(
        py: Python<'_>,
        data: &Dataset,
        links: LinkSettings<'_>,
        settings: LoaderSettings,
    ) -> PyResult<Self> {
        let layout = Layout::of(data.data());
        let all = links.links(data.data())?;
        let negatives = links.negatives(data.data())?;
        let exclusion = links.exclusion(data.data())?;
        let ranges = links.node_ranges(data.data());
        let excluded_from = links.excluded_relations();
        guard::run(py, || {
            let sampler = settings.sampler(data.data(), Some(&excluded_from))?;
            let nodes = SubgraphBatcher::new(data.data(), data.origins(), sampler, settings.subgraph);
            let n_links = all.len() as u32;
            let batcher = LinkBatcher::new(nodes, all, negatives).exclusion(exclusion).node_ranges(ranges);
            let items = settings.items((0..n_links).map(LinkId).collect())?;
            let batcher = PairBatcher { links: batcher };
            let loader = Loader::new(items, batcher, settings.threads()).map_err(error::loader)?;
            Ok(Self { loader, common: Common { settings, layout, process: Process::current() } })
        })
    }

    /// Returns the number of batches of this rank in an epoch.
    fn n_steps(&self) -> PyResult<usize> {
        Ok(self.loader.n_steps(self.common.settings.phase(0)?))
    }

    /// Starts an epoch at a step.
    fn epoch(&self, py: Python<'_>, epoch: u64, first_step: usize) -> PyResult<Batches> {
        self.common.process.check()?;
        let phase = self.common.settings.phase(epoch)?;
        let batches = guard::run(py, || Ok(Kind::Links(self.loader.epoch_from(phase, first_step))))?;
        Ok(Batches::new(batches, &self.common))
    }
}

/// The batches of an epoch, in the order of the steps. Threads make the next ones in the meantime.
///
/// A forked process has a copy of the batches without their threads, for which their end would wait: there, the batches are
/// leaked.
#[pyclass(module = "kiln._kiln")]
pub(crate) struct Batches {
    batches: ManuallyDrop<Kind>,
    layout: Layout,
    process: Process,
}

/// The batches of a kind of items.
enum Kind {
    Nodes(rust::Batches<InputBatcher>),
    Links(rust::Batches<PairBatcher>),
}

impl Kind {
    fn wait(&self) -> bool {
        match self {
            Self::Nodes(batches) => batches.wait(SIGNALS_EVERY),
            Self::Links(batches) => batches.wait(SIGNALS_EVERY),
        }
    }

    fn next(&mut self) -> Option<Result<BatchArrays, rust::Error>> {
        match self {
            Self::Nodes(batches) => batches.next(),
            Self::Links(batches) => batches.next(),
        }
    }
}

impl Batches {
    fn new(batches: Kind, common: &Common) -> Self {
        Self {
            batches: ManuallyDrop::new(batches),
            layout: common.layout.clone(),
            process: Process::current(),
        }
    }
}

#[pymethods]
impl Batches {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Returns the arrays of the next batch; `None` at the end of the epoch.
    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.process.check()?;
        while !guard::run(py, || Ok(self.batches.wait()))? {
            py.check_signals()?;
        }
        match guard::run(py, || Ok(self.batches.next()))? {
            Some(Ok(batch)) => Ok(Some(self.layout.to_python(py, batch)?)),
            Some(Err(error)) => Err(error::loader(error)),
            None => Ok(None),
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        if self.process.check().is_ok() {
            // SAFETY: the batches are dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.batches) };
        }
    }
}
