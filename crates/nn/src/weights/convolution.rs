//! The parameters of GraphSAGE, GCN and R-GCN in files of PyG and DGL.

use super::convert::set;
use super::names::{DefaultValues, Slot};
use super::{Parameter, WeightFormat, private};
use crate::{Error, Gcn, Result, Rgcn, Sage, WeightsError};

impl private::Layers for Sage {
    const COMPLETE: &'static str =
        "root_weight=True in PyG; weight=True and an aggregator other than \"gcn\" in DGL";

    fn slots(&self, format: WeightFormat) -> &'static [Slot] {
        const PYG: &[Slot] = &[
            Slot::transposed(&["lin_l.weight"]),
            Slot::transposed(&["lin_r.weight"]),
            Slot::bias(&["lin_l.bias"]),
        ];
        const DGL: &[Slot] = &[
            Slot::transposed(&["fc_neigh.weight"]),
            Slot::transposed(&["fc_self.weight"]),
            Slot::bias(&["fc_self.bias", "bias"]),
        ];
        match format {
            WeightFormat::Pyg => PYG,
            WeightFormat::Dgl => DGL,
        }
    }

    fn params(&self, _: WeightFormat) -> Vec<Vec<Parameter>> {
        let params = self.layers.iter().map(|layer| {
            vec![
                Parameter::new(&layer.weight_neigh),
                Parameter::new(&layer.weight_self),
                Parameter::new(&layer.bias),
            ]
        });
        params.collect()
    }

    fn set_layers(&mut self, layers: Vec<Vec<Vec<f32>>>) {
        for (layer, values) in self.layers.iter_mut().zip(layers) {
            let mut values = values.into_iter();
            set(&mut layer.weight_neigh, &mut values);
            set(&mut layer.weight_self, &mut values);
            set(&mut layer.bias, &mut values);
        }
    }
}

impl private::Layers for Gcn {
    const COMPLETE: &'static str = "weight=True in DGL";

    fn slots(&self, format: WeightFormat) -> &'static [Slot] {
        const PYG: &[Slot] = &[Slot::transposed(&["lin.weight"]), Slot::bias(&["bias"])];
        const DGL: &[Slot] = &[Slot::weight(&["weight"]), Slot::bias(&["bias"])];
        match format {
            WeightFormat::Pyg => PYG,
            WeightFormat::Dgl => DGL,
        }
    }

    fn params(&self, _: WeightFormat) -> Vec<Vec<Parameter>> {
        let params = self.layers.iter();
        params.map(|layer| vec![Parameter::new(&layer.weight), Parameter::new(&layer.bias)]).collect()
    }

    fn set_layers(&mut self, layers: Vec<Vec<Vec<f32>>>) {
        for (layer, values) in self.layers.iter_mut().zip(layers) {
            let mut values = values.into_iter();
            set(&mut layer.weight, &mut values);
            set(&mut layer.bias, &mut values);
        }
    }
}

impl private::Layers for Rgcn {
    const COMPLETE: &'static str =
        "root_weight=True and num_bases in PyG; self_loop=True and regularizer=\"basis\" in DGL";

    fn check_portable(&self) -> Result<()> {
        match self.layers.iter().all(|layer| layer.edge_linear.is_none()) {
            true => Ok(()),
            false => Err(Error::Weights(WeightsError::NotPortable {
                what: "matrices of edge features by relation",
            })),
        }
    }

    fn slots(&self, format: WeightFormat) -> &'static [Slot] {
        // A layer without bases has one matrix per relation and no coefficients.
        const PYG: &[Slot] = &[
            Slot::weight(&["root"]),
            Slot::weight(&["weight"]),
            Slot::optional(&["comp"], DefaultValues::Identity),
            Slot::bias(&["bias"]),
        ];
        const DGL: &[Slot] = &[
            Slot::weight(&["loop_weight"]),
            Slot::weight(&["linear_r.W"]),
            Slot::optional(&["linear_r.coeff"], DefaultValues::Identity),
            Slot::bias(&["h_bias"]),
        ];
        match format {
            WeightFormat::Pyg => PYG,
            WeightFormat::Dgl => DGL,
        }
    }

    fn params(&self, _: WeightFormat) -> Vec<Vec<Parameter>> {
        let params = self.layers.iter().map(|layer| {
            let [d_in, d_out] = layer.weight_self.dims();
            let [_, n_bases] = layer.coefficients.dims();
            vec![
                Parameter::new(&layer.weight_self),
                Parameter::with_shape(&[n_bases, d_in, d_out], &layer.bases),
                Parameter::new(&layer.coefficients),
                Parameter::new(&layer.bias),
            ]
        });
        params.collect()
    }

    fn set_layers(&mut self, layers: Vec<Vec<Vec<f32>>>) {
        for (layer, values) in self.layers.iter_mut().zip(layers) {
            let mut values = values.into_iter();
            set(&mut layer.weight_self, &mut values);
            set(&mut layer.bases, &mut values);
            set(&mut layer.coefficients, &mut values);
            set(&mut layer.bias, &mut values);
        }
    }
}
