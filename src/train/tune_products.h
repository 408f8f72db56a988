// --tune-products FILE: measures the algorithms of matrix products once and keeps the choice in a file, so that later
// runs use the same algorithms and get the same bits.
//
// The file is JSON and records the kind of device and the version of the library for which it was made. All ranks use
// the same choices: from the file, which rank 0 reads, and for new products from the lowest rank that has the product.
// Rank 0 rewrites the file if products were added.
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
// BadInput, beginning with `where`, if the text was not written by to_text, has an older format or is damaged.
ProductTable parse_products(const std::string& text, const std::string& where);

// One object per rank. Between the constructor and `finish`, both collective, every new product is measured.
// Destruction without `finish` also ends the measuring.
class ProductMeasuring {
 public:
  // Collective. BadInput on all ranks if the file was not written by to_text, or if ranks have different kinds of
  // devices. A file made for another kind of device is ignored.
  ProductMeasuring(Communicator& world, ProductTuning& tuning, std::string file);
  ~ProductMeasuring();
  ProductMeasuring(const ProductMeasuring&) = delete;
  ProductMeasuring& operator=(const ProductMeasuring&) = delete;

  // Collective. Merges the choices of all ranks. Returns the message for rank 0 to show; empty if the file had all
  // choices.
  std::string finish();

 private:
  Communicator& world_;
  ProductTuning& tuning_;
  std::string file_;
  std::string was_made_for_;  // on rank 0: the file's kind of device, if it differs
  size_t known_ = 0;          // choices in the file
};

}  // namespace trifold
