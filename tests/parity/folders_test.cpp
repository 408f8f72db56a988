// Folders of Hugging Face read as checkpoints: any box of any parameter has the elements that the whole one has there.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "models/folders/open_model.h"
#include "support/test_data.h"

namespace trifold::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> read_folder_box(FolderSource& source, const TensorInfo& tensor, const Rect& rect) {
  std::vector<std::byte> bytes(static_cast<size_t>(rect.elements()) * size_of(tensor.dtype));
  NamedTensor box;
  box.spec.name = tensor.name;
  box.spec.global = tensor.global;
  box.spec.local = rect;
  box.data = {bytes.data(), tensor.dtype, rect.extent};
  source.read({&box, 1});
  return bytes;
}

TEST(Folders, HaveTheSameElementsInEveryBox) {
  std::mt19937 draw(7);
  int64_t folders = 0, boxes = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(test_data()) / "golden")) {
    const bool has_weights =
        fs::exists(entry.path() / kSafetensorsName) || fs::exists(entry.path() / kSafetensorsIndexName);
    if (!has_weights || !is_hugging_face_folder(entry.path())) continue;
    SCOPED_TRACE(entry.path().string());
    const auto folder = std::make_shared<const HuggingFaceFolder>(entry.path());
    FolderSource at_once(folder), in_small_parts(folder, 100);
    const CheckpointReader reader = reader_of(folder, false);
    ++folders;
    for (const TensorInfo& tensor : reader.tensors()) {
      const Rect all = Rect::whole(tensor.global);
      const std::vector<std::byte> whole = read_folder_box(at_once, tensor, all);
      ASSERT_EQ(read_folder_box(in_small_parts, tensor, all), whole) << tensor.name;
      for (int time = 0; time < 4; ++time, ++boxes) {
        Rect part = all;
        for (int dim = 0; dim < tensor.global.rank(); ++dim) {
          part.offset[dim] = std::uniform_int_distribution<int64_t>(0, tensor.global[dim] - 1)(draw);
          part.extent[dim] =
              std::uniform_int_distribution<int64_t>(1, tensor.global[dim] - part.offset[dim])(draw);
        }
        std::vector<std::byte> wanted(static_cast<size_t>(part.elements()) * size_of(tensor.dtype));
        copy_rect(wanted.data(), part, whole.data(), all, part, size_of(tensor.dtype));
        ASSERT_EQ(read_folder_box(in_small_parts, tensor, part), wanted)
            << tensor.name << " " << to_string(part);
      }
    }
  }
  EXPECT_GE(folders, 10);
  EXPECT_GT(boxes, 1000);
}

}  // namespace
}  // namespace trifold::test
