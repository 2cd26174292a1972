#include "tests/unit/client/fake_broker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>

#include "cuda/nvml.h"
#include "shm/seqlock.h"
#include "sim/machine/machine.h"
#include "tests/support/eventually.h"

namespace gpumem::client::test {
namespace {

using gpumem::test::kPatience;

constexpr std::uint64_t kExtent = 2 << 20;
/// The shared pages begin with a device that the client cannot see.
constexpr std::size_t kUnseen = 1;

const cuda::Driver* simulated_driver() {
  auto driver = cuda::Driver::open(simulated_machine());
  EXPECT_TRUE(driver) << to_string(driver.error());
  return *driver;
}

}  // namespace

std::filesystem::path simulated_machine() {
  struct Made {
    Made() {
      const auto made = sim::create_machine(folder.path(), "2x64MiB", SIM_LIBRARIES);
      EXPECT_TRUE(made) << to_string(made.error());
    }
    ~Made() { (void)sim::remove_machine(folder.path()); }
    TemporaryFolder folder;
  };
  static const Made kMade;
  return kMade.folder.path();
}

FakeBroker::FakeBroker()
    : driver_(simulated_driver()),
      page_file_(broker_page_file()),
      page_(*map_page<BrokerPage>(page_file_.get())),
      lane_([this](int socket) { serve_lane(socket); }) {
  figures_.device_count = kUnseen + driver_->devices().size();
  for (std::size_t i = kUnseen; i < figures_.device_count; ++i)
    figures_.devices[i].pool = mebibytes(64).count;
  publish();
}

void FakeBroker::hang_up() {
  const std::scoped_lock lock(mutex_);
  ::shutdown(lane_socket_, SHUT_RDWR);
}

void FakeBroker::stop_answering() {
  const std::scoped_lock lock(mutex_);
  answering_ = false;
}

void FakeBroker::start_answering() {
  const std::scoped_lock lock(mutex_);
  answering_ = true;
  changed_.notify_all();
}

void FakeBroker::await_answering() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return answering_; });
}

void FakeBroker::serve_lane(int socket) {
  greet(socket);
  for (;;) {
    const Said said = receive_frame(socket);
    await_answering();
    if (!serve(said)) break;
  }
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  for (std::thread& thread : growing_) thread.join();
}

void FakeBroker::greet(int socket) {
  const Said hello = receive_frame(socket);
  EXPECT_TRUE(hello.is<lane::Hello>());
  std::vector<std::string> devices(kUnseen, "GPU-00000000-0000-0000-0000-000000000000");
  for (const cuda::Device& device : driver_->devices()) devices.push_back(to_string(device.uuid));
  lane::Welcome message = welcome(devices);
  message.driver_folder = decltype(message.driver_folder)::of(simulated_machine().string());
  const UniqueFd client_page = client_page_file();
  int doorbell[2];
  ASSERT_EQ(::pipe2(doorbell, O_CLOEXEC), 0);
  const UniqueFd listening(doorbell[0]);
  {
    const std::scoped_lock lock(mutex_);
    lane_socket_ = socket;
    doorbell_.reset(doorbell[1]);
  }
  send_frame(socket, message, hello.header.request, {page_file_.get(), client_page.get(), listening.get()});
}

/// False: the client has left.
bool FakeBroker::serve(const Said& said) {
  using lane::Kind;
  switch (said.header.kind) {
    case Kind::kOpenSlice: return open_slice(said), true;
    case Kind::kCloseSlice: return close_slice(said), true;
    case Kind::kReturn: return take_back(said), true;
    case Kind::kCharge: return charge(said), true;
    case Kind::kPing: return answer(said, lane::Done{}), true;
    case Kind::kGrow: return start_growth(said), true;
    case Kind::kAccept:
    case Kind::kSpent:
    case Kind::kCancel: break;
    default: return false;
  }
  const std::scoped_lock lock(mutex_);
  if (said.is<lane::Accept>()) accepted_.insert(said.as<lane::Accept>().grant);
  if (said.is<lane::Spent>()) ++spent_[said.as<lane::Spent>().device];
  if (said.is<lane::Cancel>()) cancelled_.insert(said.as<lane::Cancel>().growth);
  changed_.notify_all();
  return true;
}

void FakeBroker::open_slice(const Said& said) {
  const auto request = said.as<lane::OpenSlice>();
  const std::scoped_lock lock(mutex_);
  const lane::SliceOpened opened{++last_id_, request.limit != 0 ? request.limit : 16 * kExtent, kExtent};
  slices_.emplace(opened.slice, request.device - kUnseen);
  answer(said, opened);
}

void FakeBroker::close_slice(const Said& said) {
  const std::scoped_lock lock(mutex_);
  EXPECT_EQ(slices_.erase(said.as<lane::CloseSlice>().slice), 1U);
  answer(said, lane::Done{});
}

void FakeBroker::start_growth(const Said& said) {
  const std::scoped_lock lock(mutex_);
  ++unanswered_;
  growing_.emplace_back([this, number = said.header.request, request = said.as<lane::Grow>()] {
    grow(number, request);
    const std::scoped_lock answered(mutex_);
    --unanswered_;
    changed_.notify_all();
  });
}

void FakeBroker::grow(std::uint64_t number, const lane::Grow& request) {
  if (request.wait != 0) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const auto from = static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
    send_frame(lane_socket_, lane::Waiting{from + request.wait}, number);
  }
  if (before_grant) before_grant();
  await_answering();
  {
    const std::scoped_lock lock(mutex_);
    requests_.push_back(request);
  }
  std::optional<lane::Failed> refused;
  if (refuse_growth) {
    refused = refuse_growth([&] {
      const std::scoped_lock lock(mutex_);
      return ended_ || cancelled_.contains(number);
    });
  } else if (!enough_for(request)) {
    refused = failed(Code::kResourceExhausted, "not enough");
  }
  if (refused) return send_frame(lane_socket_, *refused, number);
  std::vector<UniqueFd> exported;
  std::vector<lane::GrantedLease> leases;
  {
    const std::scoped_lock lock(mutex_);
    if (!knows_slices_of(request))
      return send_frame(lane_socket_, failed(Code::kNotFound, "no slice"), number);
    leases = lend(request);
    for (const lane::GrantedLease& lease : leases)
      exported.push_back(std::move(*loans_.at(lease.lease).memory.export_descriptor()));
  }
  if (tamper) tamper(leases);
  send_grant(number, leases, exported);
}

bool FakeBroker::enough_for(const lane::Grow& request) const {
  return std::all_of(request.parts.begin(), request.parts.begin() + request.count,
                     [this](const lane::GrowPart& part) {
                       return (part.min_bytes != 0 ? part.min_bytes : part.bytes) <= most;
                     });
}

bool FakeBroker::knows_slices_of(const lane::Grow& request) const {
  return std::all_of(request.parts.begin(), request.parts.begin() + request.count,
                     [this](const lane::GrowPart& part) { return slices_.contains(part.slice); });
}

std::vector<lane::GrantedLease> FakeBroker::lend(const lane::Grow& request) {
  std::vector<lane::GrantedLease> leases;
  for (std::size_t i = 0; i < request.count; ++i) lend_part(request.parts[i], leases);
  return leases;
}

void FakeBroker::lend_part(const lane::GrowPart& part, std::vector<lane::GrantedLease>& leases) {
  const std::size_t ordinal = slices_.at(part.slice);
  std::uint64_t left = std::min(part.bytes, most);
  for (std::size_t i = 0; left > 0; ++i) {
    const std::uint64_t size = i < extent_sizes.size() ? extent_sizes[i] : kExtent;
    auto memory = cuda::Allocation::create(*driver_, static_cast<int>(ordinal), {size});
    ASSERT_TRUE(memory) << to_string(memory.error());
    leases.push_back({++last_id_, size, part.slice});
    loans_.emplace(last_id_, Loan{size, ordinal, std::move(*memory)});
    left -= std::min(left, size);
  }
}

void FakeBroker::send_grant(std::uint64_t request, const std::vector<lane::GrantedLease>& leases,
                            const std::vector<UniqueFd>& exported) {
  std::size_t sent = 0;
  do {
    lane::Granted part{};
    part.grant = request;
    std::vector<int> numbers;
    for (; sent < leases.size() && part.count < leases_in_frame; ++sent) {
      part.leases[part.count++] = leases[sent];
      numbers.push_back(exported[sent].get());
    }
    part.missing = leases.size() - sent;
    send_frame(lane_socket_, part, request, numbers);
  } while (sent < leases.size());
}

void FakeBroker::take_back(const Said& said) {
  if (refuse_return) {
    if (const auto refused = refuse_return()) return answer(said, *refused);
  }
  const auto request = said.as<lane::Return>();
  const std::scoped_lock lock(mutex_);
  for (std::size_t i = 0; i < request.count; ++i) {
    const auto loan = loans_.find(request.leases[i]);
    if (loan == loans_.end()) return answer(said, failed(Code::kNotFound, "not on loan"));
    DeviceFigures& device = figures_.devices[kUnseen + loan->second.ordinal];
    device.pressure -= std::min(device.pressure, loan->second.size);
    loans_.erase(loan);
  }
  publish();
  answer(said, lane::Done{});
}

void FakeBroker::charge(const Said& said) {
  const std::scoped_lock lock(mutex_);
  charges_.push_back(said.as<lane::Charge>());
  answer(said, lane::Done{});
}

std::size_t FakeBroker::leases_out() const {
  const std::scoped_lock lock(mutex_);
  return loans_.size();
}

std::size_t FakeBroker::slices_open() const {
  const std::scoped_lock lock(mutex_);
  return slices_.size();
}

std::size_t FakeBroker::growths() const {
  const std::scoped_lock lock(mutex_);
  return requests_.size();
}

std::vector<lane::Grow> FakeBroker::requests() const {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

std::vector<lane::Charge> FakeBroker::charges() const {
  const std::scoped_lock lock(mutex_);
  return charges_;
}

std::uint64_t FakeBroker::in_use() {
  {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [this] { return unanswered_ == 0; }));
  }
  auto nvml = cuda::Nvml::open(simulated_machine());
  EXPECT_TRUE(nvml) << to_string(nvml.error());
  auto memory = (*nvml)->memory(driver_->devices().front().uuid);
  EXPECT_TRUE(memory) << to_string(memory.error());
  return memory->used.count;
}

void FakeBroker::await_accepted(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return accepted_.size() >= count; });
}

void FakeBroker::ask_back(Bytes bytes, std::chrono::nanoseconds deadline, std::size_t ordinal) {
  write_pressure(bytes, deadline, ordinal);
  ring();
}

void FakeBroker::write_pressure(Bytes bytes, std::chrono::nanoseconds deadline, std::size_t ordinal) {
  const std::scoped_lock lock(mutex_);
  DeviceFigures& device = figures_.devices[kUnseen + ordinal];
  device.pressure = bytes.count;
  device.pressure_deadline = static_cast<std::uint64_t>(deadline.count());
  publish();
}

void FakeBroker::ring() {
  const std::scoped_lock lock(mutex_);
  const std::uint64_t once = 1;
  EXPECT_EQ(::write(doorbell_.get(), &once, sizeof once), static_cast<ssize_t>(sizeof once));
}

void FakeBroker::drop_bell() {
  const std::scoped_lock lock(mutex_);
  doorbell_.reset();
}

std::uint64_t FakeBroker::asked_back(std::size_t ordinal) const {
  const std::scoped_lock lock(mutex_);
  return figures_.devices[kUnseen + ordinal].pressure;
}

std::size_t FakeBroker::spent(std::size_t ordinal) const {
  const std::scoped_lock lock(mutex_);
  const auto found = spent_.find(kUnseen + ordinal);
  return found == spent_.end() ? 0 : found->second;
}

void FakeBroker::await_spent(std::size_t count, std::size_t ordinal) {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return spent_[kUnseen + ordinal] >= count; }));
}

void FakeBroker::publish() { seqlock_write(page_->sequence, page_->figures, figures_); }

}  // namespace gpumem::client::test
