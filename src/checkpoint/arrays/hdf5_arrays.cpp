#include "checkpoint/arrays/hdf5_arrays.h"

#include <algorithm>
#include <array>
#include <bit>

#include "checkpoint/hdf5/hdf5_calls.h"
#include "core/printable.h"

namespace trifold {

using hdf5::Handle;
using hdf5::locked;
using hdf5::ok;

namespace {

static_assert(std::endian::native == std::endian::little, "elements are read in the order of this machine");

constexpr int kMostDepth = 16;
constexpr size_t kMostArrays = 10'000;
constexpr int64_t kMostPacked = 1100;  // bytes that one byte of a compressed file can hold

// The kind of a type's elements; nothing for texts, records, and numbers of other sizes.
std::optional<char> kind_of(hid_t type) {
  const size_t size = H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      if (size > 8 || !std::has_single_bit(size)) return std::nullopt;
      return H5Tget_sign(type) == H5T_SGN_NONE ? 'u' : 'i';
    case H5T_FLOAT: {
      constexpr size_t kBiasOfFloat16 = 15;  // bf16 has another one
      const bool is_float16 = size == 2 && H5Tget_ebias(type) == kBiasOfFloat16;
      return size == 4 || size == 8 || is_float16 ? std::optional('f') : std::nullopt;
    }
    case H5T_ENUM: {  // h5py stores bools as an enumeration FALSE, TRUE of one byte
      std::array<char, 8> name{};
      int8_t one = 1;
      const bool is_bool = size == 1 && H5Tget_nmembers(type) == 2 &&
                           H5Tenum_nameof(type, &one, name.data(), name.size()) >= 0;
      H5Eclear2(H5E_DEFAULT);
      if (is_bool && std::string(name.data()) == "TRUE") return 'b';
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

// The type of the elements in memory: IEEE floats, and otherwise as in the file but little-endian.
Handle type_in_memory(hid_t stored) {
  if (H5Tget_class(stored) == H5T_FLOAT && H5Tget_size(stored) > 2)
    return {H5Tcopy(H5Tget_size(stored) == 4 ? H5T_IEEE_F32LE : H5T_IEEE_F64LE), H5Tclose, "copy a type"};
  Handle type(H5Tcopy(stored), H5Tclose, "copy a type");
  if (H5Tget_class(type) != H5T_ENUM) ok(H5Tset_order(type, H5T_ORDER_LE), "set the order of a type");
  return type;
}

std::vector<int64_t> shape_of(hid_t dataset) {
  const Handle space(H5Dget_space(dataset), H5Sclose, "read a shape");
  const int rank = ok(H5Sget_simple_extent_ndims(space), "read a shape");
  std::vector<hsize_t> dims(static_cast<size_t>(rank));
  ok(H5Sget_simple_extent_dims(space, dims.data(), nullptr), "read a shape");
  return {dims.begin(), dims.end()};
}

class Search {
 public:
  Search(hid_t file, int64_t file_bytes) : file_bytes_(file_bytes) {
    visit(file, "", 0);
    std::sort(arrays_.begin(), arrays_.end(),
              [](const Hdf5Array& a, const Hdf5Array& b) { return a.name < b.name; });
  }
  std::vector<Hdf5Array> take() { return std::move(arrays_); }

 private:
  void visit(hid_t group, const std::string& path, int depth) {
    H5G_info_t info{};
    ok(H5Gget_info(group, &info), "list a group");
    for (hsize_t i = 0; i < info.nlinks; ++i) {
      const std::string name = name_of_link(group, i);
      H5L_info_t link{};
      ok(H5Lget_info(group, name.c_str(), &link, H5P_DEFAULT), "read a link");
      if (link.type != H5L_TYPE_HARD) continue;  // another name of an object, perhaps of another file
      const Handle object(H5Oopen(group, name.c_str(), H5P_DEFAULT), H5Oclose, "open an object");
      std::string whole = path;
      if (!path.empty()) whole += "/";
      whole += name;
      if (H5Iget_type(object) == H5I_DATASET) add(object, whole);
      if (H5Iget_type(object) == H5I_GROUP && depth < kMostDepth) visit(object, whole, depth + 1);
    }
  }

  static std::string name_of_link(hid_t group, hsize_t i) {
    std::array<char, 1024> name{};
    ok(H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(), H5P_DEFAULT),
       "read the name of an object");
    return name.data();
  }

  void add(hid_t dataset, const std::string& name) {
    const Handle type(H5Dget_type(dataset), H5Tclose, "read a type");
    const auto kind = kind_of(type);
    const auto size = static_cast<int64_t>(H5Tget_size(type));
    if (!kind) return;
    if (arrays_.size() >= kMostArrays) bad_input("the file has more than {} datasets", kMostArrays);
    Hdf5Array array{name, *kind, size, shape_of(dataset), std::nullopt};
    check_size(array);
    // An undefined offset: the dataset is in chunks, compressed, in another file, or was never written.
    const haddr_t offset = H5Dget_offset(dataset);
    H5Eclear2(H5E_DEFAULT);
    const bool plain = array.bytes() > 0 && H5Tequal(type, type_in_memory(type)) > 0;
    if (plain && offset != HADDR_UNDEF && static_cast<int64_t>(offset) <= file_bytes_ - array.bytes())
      array.offset = static_cast<int64_t>(offset);
    arrays_.push_back(std::move(array));
  }

  void check_size(const Hdf5Array& array) const {
    int64_t bytes = array.size;
    bool fits = true;
    for (const int64_t extent : array.shape)
      fits = fits && extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes);
    if (!fits || bytes / kMostPacked > file_bytes_)
      bad_input("the dataset '{}' has more elements than a file of {} bytes can hold", printable(array.name),
                file_bytes_);
  }

  int64_t file_bytes_;
  std::vector<Hdf5Array> arrays_;
};

Handle open_file(const std::filesystem::path& path) {
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make properties");
  ok(H5Pset_file_locking(access, false, true), "switch file locks off");
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access);
  if (id < 0) bad_input("it cannot be opened as an HDF5 file: {}", hdf5::reason());
  return {id, H5Fclose, "open the file"};
}

}  // namespace

int64_t Hdf5Array::bytes() const {
  int64_t bytes = size;
  for (const int64_t extent : shape) bytes *= extent;
  return bytes;
}

std::vector<Hdf5Array> hdf5_arrays(const std::filesystem::path& path) {
  return locked(path, "", [&] {
    const Handle file = open_file(path);
    return Search(file, static_cast<int64_t>(std::filesystem::file_size(path))).take();
  });
}

void read_hdf5_array(const std::filesystem::path& path, const Hdf5Array& array, std::span<std::byte> to) {
  locked(path, array.name, [&] {
    check(std::ssize(to) == array.bytes(), "{} bytes are read into {}", array.bytes(), to.size());
    const Handle file = open_file(path);
    const Handle dataset(H5Dopen2(file, array.name.c_str(), H5P_DEFAULT), H5Dclose, "open the dataset");
    const Handle stored(H5Dget_type(dataset), H5Tclose, "read a type");
    const Handle type = type_in_memory(stored);
    if (shape_of(dataset) != array.shape || kind_of(stored) != array.kind ||
        static_cast<int64_t>(H5Tget_size(stored)) != array.size)
      bad_input("it was changed while it was read");
    if (to.empty()) return;
    if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to.data()) < 0)
      bad_input("its elements cannot be read: {}", hdf5::reason());
  });
}

}  // namespace trifold
