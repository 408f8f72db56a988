// The kernels compiled for the compiler's baseline; src/ops/CMakeLists.txt sets the flags.
#include "ops/kernels/table.h"

namespace trifold::cpu {

constinit const KernelTable kKernelsGeneric{"generic", make_kernels<float>(), make_kernels<double>()};

}  // namespace trifold::cpu
