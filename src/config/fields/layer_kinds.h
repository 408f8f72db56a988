// The kinds of layers of a language model. Layers of one kind have the same parameters, shapes and operations; all else
// that depends on a layer's number (weights, dropout masks) follows from its name.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "config/fields/config.h"

namespace trifold {

struct LayerKind {
  ModelConfig model;  // the model as if all its layers were of this kind
  std::string name;   // for reports: "layer", or what distinguishes the kind, such as "layer without experts"
};

struct LayerKinds {
  // At least one. Kinds with experts are behind those without.
  std::vector<LayerKind> kinds;
  std::vector<size_t> of_layer;  // [num_layers], an index into `kinds`
};

// BadInput if a pattern of layers does not fit the number of layers. A model without layers has one kind.
LayerKinds layer_kinds(const ModelConfig& config);
// For each layer, whether its attention has a window.
std::vector<bool> window_layers(const ModelConfig& config);
// The kind of the last layer (of the only kind, without layers), and the model with all layers of that kind: layers of
// modules after the last layer are like it.
size_t last_layer_kind(const LayerKinds& layers);
ModelConfig model_of_last_layer(const ModelConfig& config);
}  // namespace trifold
