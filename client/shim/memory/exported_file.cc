#include "client/shim/memory/exported_file.h"

#include <fcntl.h>

namespace gpumem::shim {
namespace {

constexpr int kDuplicateQuery = 1027;  // F_DUPFD_QUERY, of Linux 6.10

}  // namespace

bool is_same_open_file(int one, int other) {
  const int told = ::fcntl(one, kDuplicateQuery, other);
  return told >= 0 ? told == 1 : share_status_flags(one, other);
}

// Flags belong to the open file. Nobody reads or writes an exported one. kcmp(2) is what containers forbid.
bool share_status_flags(int one, int other) {
  const int flags = ::fcntl(one, F_GETFL);
  if (flags < 0 || ::fcntl(other, F_GETFL) != flags) return false;
  if (::fcntl(one, F_SETFL, flags ^ O_NONBLOCK) != 0) return false;
  const bool is_same = ::fcntl(other, F_GETFL) == (flags ^ O_NONBLOCK);
  (void)::fcntl(one, F_SETFL, flags);
  return is_same;
}

// A program that names the number of the kept descriptor has closed that one.
bool ExportedFile::is_of(int fd) const {
  return is_kept() && fd != own_.get() && is_same_open_file(own_.get(), fd);
}

}  // namespace gpumem::shim
