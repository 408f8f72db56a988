// --tune-products FILE: the algorithms of matrix products are measured once and kept in a file, so that later
// runs take the same ones and have the same bits.
//
// The file is JSON and says for which kind of device, and which version of the library, it was made. All
// ranks take the same choices: those of the file, which rank 0 reads, and of a product that is not in it,
// what the lowest rank measured that has the product. Rank 0 then writes the file anew where something was
// added.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "ops/product_tuning.h"

namespace trifold {

struct ProductTable {
  std::string made_for;
  std::vector<ProductChoice> choices;
};

std::string to_text(const ProductTable& table);
// BadInput, beginning with `where`, where the text is none of to_text, or damaged.
ProductTable parse_products(const std::string& text, const std::string& where);

// One of each rank, between two collective steps of its life: the constructor, after which products that are
// met are measured, and `finish`. Where `finish` is not reached nothing is measured any longer.
class ProductMeasuring {
 public:
  // Collective. BadInput on all ranks where the file is not one of to_text, or ranks have different kinds of
  // devices. A file that was made for another kind of device counts as none.
  ProductMeasuring(Communicator& world, ProductTuning& tuning, std::string file);
  ~ProductMeasuring();
  ProductMeasuring(const ProductMeasuring&) = delete;
  ProductMeasuring& operator=(const ProductMeasuring&) = delete;

  // Collective. Merges the choices of all ranks. Returns the message that rank 0 shows; empty if the file had
  // all of them.
  std::string finish();

 private:
  Communicator& world_;
  ProductTuning& tuning_;
  std::string file_;
  std::string was_made_for_;  // on rank 0: what the file says, where that is another kind of device
  size_t known_ = 0;          // choices in the file
};

}  // namespace trifold
