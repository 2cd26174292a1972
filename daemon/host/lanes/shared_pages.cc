#include "daemon/host/lanes/shared_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "shm/seqlock.h"

namespace gpumem::host {
namespace {

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

// A file of one page, mapped for writing, then sealed: its size is fixed for ever, so reading it can
// never fault, whatever a client does.
Result<void*> make_page(const char* name, unsigned more_seals, UniqueFd& file) {
  file.reset(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return errno_error(errno, "cannot make a shared page");
  if (::ftruncate(file.get(), kSharedPageBytes) != 0) return errno_error(errno, "cannot size a shared page");
  void* page = ::mmap(nullptr, kSharedPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (page == MAP_FAILED) return errno_error(errno, "cannot map a shared page");
  const unsigned seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | more_seals;
  if (::fcntl(file.get(), F_ADD_SEALS, seals) != 0) {
    const int number = errno;
    ::munmap(page, kSharedPageBytes);
    return errno_error(number, "cannot seal a shared page");
  }
  return page;
}

}  // namespace

Result<SharedPages> SharedPages::create() {
  SharedPages pages;
  auto broker = make_page("gpumem-broker-page", F_SEAL_FUTURE_WRITE, pages.broker_file_);
  if (!broker) return broker.error();
  pages.broker_ = static_cast<BrokerPage*>(*broker);
  initialize(*pages.broker_);
  auto client = make_page("gpumem-client-page", 0, pages.client_file_);
  if (!client) return client.error();
  pages.client_ = static_cast<ClientPage*>(*client);
  initialize(*pages.client_);
  return pages;
}

SharedPages::SharedPages(SharedPages&& other) noexcept
    : broker_(std::exchange(other.broker_, nullptr)),
      client_(std::exchange(other.client_, nullptr)),
      broker_file_(std::move(other.broker_file_)),
      client_file_(std::move(other.client_file_)) {}

SharedPages::~SharedPages() {
  if (broker_ != nullptr) ::munmap(broker_, kSharedPageBytes);
  if (client_ != nullptr) ::munmap(client_, kSharedPageBytes);
}

void SharedPages::publish(const BrokerFigures& figures) {
  const std::size_t used = offsetof(BrokerFigures, devices) + figures.device_count * sizeof(DeviceFigures);
  seqlock_write(broker_->sequence, broker_->figures, figures, used);
}

std::array<UniqueFd, 2> SharedPages::take_descriptors() {
  return {std::move(broker_file_), std::move(client_file_)};
}

Result<Doorbell> Doorbell::create() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno_error(errno, "cannot make a doorbell");
  Doorbell doorbell;
  doorbell.read_.reset(ends[0]);
  doorbell.write_.reset(ends[1]);
  ::fcntl(ends[1], F_SETPIPE_SZ, 4096);  // as much as it ever needs; a failure costs a little memory
  return doorbell;
}

void Doorbell::ring() const {
  const std::uint64_t one = 1;
  // Full, or the client is gone: neither is the broker's matter.
  static_cast<void>(::write(write_.get(), &one, sizeof one) < 0);
}

}  // namespace gpumem::host
