// Preloaded before MPI (LD_PRELOAD), changes one message of one rank: TRIFOLD_LIE is RANK:TAG:NUMBER:CHANGE, for message
// NUMBER (from 0) among those whose tag is TAG modulo 8, the kinds of MpiTag (comm/mpi/mpi_world.h). CHANGE is the number
// of bytes by which it becomes longer (shorter if negative), or @PLACE=VALUE, which puts the 32-bit VALUE at byte PLACE.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

struct Lie {
  int rank = -1;
  int tag = 0;
  int number = 0;
  int longer = 0;
  int place = -1;
  int value = 0;
};

const Lie& lie() {
  static const Lie kLie = [] {
    Lie read;
    char change[64] = {};
    const char* text = std::getenv("TRIFOLD_LIE");
    if (text == nullptr ||
        std::sscanf(text, "%d:%d:%d:%63s", &read.rank, &read.tag, &read.number, change) != 4)
      return Lie{};
    if (std::sscanf(change, "@%d=%d", &read.place, &read.value) != 2) read.longer = std::atoi(change);
    return read;
  }();
  return kLie;
}

}  // namespace

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  static int seen = 0;  // MPI is called under one lock
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != lie().rank || tag % 8 != lie().tag || seen++ != lie().number)
    return PMPI_Isend(data, count, type, to, tag, comm, request);
  auto* changed =
      new std::vector<char>(static_cast<size_t>(count) + 64, 0x7f);  // MPI may read it until the end
  std::memcpy(changed->data(), data, static_cast<size_t>(count));
  if (lie().place >= 0)
    std::memcpy(changed->data() + std::min(lie().place, count), &lie().value, sizeof(int));
  return PMPI_Isend(changed->data(), std::max(0, count + lie().longer), type, to, tag, comm, request);
}
