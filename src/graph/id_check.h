// IdCheck: ids of a batch that a block looks up in a table, or labels of classes. Blocks do not check them: the host does,
// before the step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "graph/host/array.h"
#include "graph/lower/view.h"

namespace trifold::graph {

struct IdCheck {
  // Elements of a prepared value (graph/preparation.h), by its index among them.
  struct Part {
    size_t value = 0;
    View view;
  };
  Part ids;
  Size count;                   // the ids that exist are 0 to count - 1
  std::optional<Part> weights;  // as many as ids; ids of weight 0 are not looked up
  // What the model does with them, as a clause: "node 'a' (embedding) looks them up in 'w'".
  std::string what;
  std::string name;            // the input, or the node that computes the value
  bool is_per_sample = false;  // whether the first axis of the value is that of the samples
};

// BadInput if an id does not exist: naming the value, the id, the sample and the range. `arrays` are the prepared values
// for `batch` samples; `samples`, if it is not empty, are the indices of the samples for the message.
void check_ids(const IdCheck& check, std::span<const Array* const> arrays, int64_t batch,
               std::span<const int64_t> samples);

}  // namespace trifold::graph
