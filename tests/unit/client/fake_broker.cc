#include "tests/unit/client/fake_broker.h"

#include <fcntl.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/nvml.h"
#include "proto/lane.h"
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

grpc::Status no_session() { return {grpc::StatusCode::UNAUTHENTICATED, "no such session"}; }

bool has_token(const grpc::ServerContext& context) {
  const auto found = context.client_metadata().find(kSessionMetadataKey);
  return found != context.client_metadata().end() && found->second == "token";
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
  publish();
  start_answering();
}

FakeBroker::~FakeBroker() { stop_answering(); }

void FakeBroker::start_answering() {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + folder() + "/api.sock", grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  EXPECT_TRUE(server_);
}

void FakeBroker::stop_answering() {
  if (server_) server_->Shutdown(std::chrono::system_clock::now());
  server_.reset();
}

void FakeBroker::serve_lane(int socket) {
  EXPECT_TRUE(receive_message(socket).has_hello());
  std::vector<std::string> devices(kUnseen, "GPU-00000000-0000-0000-0000-000000000000");
  for (const cuda::Device& device : driver_->devices()) devices.push_back(to_string(device.uuid));
  v1::ToClient message = welcome(devices);
  message.mutable_welcome()->set_driver_folder(simulated_machine().string());
  const UniqueFd client_page = client_page_file();
  int doorbell[2];
  ASSERT_EQ(::pipe2(doorbell, O_CLOEXEC), 0);
  const UniqueFd listening(doorbell[0]);
  {
    const std::scoped_lock lock(mutex_);
    lane_socket_ = socket;
    doorbell_.reset(doorbell[1]);
  }
  send_message(socket, message, {page_file_.get(), client_page.get(), listening.get()});
  for (;;) {
    const v1::ToBroker said = receive_message(socket);
    if (!said.has_accept() && !said.has_spent()) return;
    const std::scoped_lock lock(mutex_);
    if (said.has_accept()) accepted_.insert(said.accept().grant());
    if (said.has_spent()) ++spent_[said.spent().device()];
    changed_.notify_all();
  }
}

grpc::Status FakeBroker::OpenSlice(grpc::ServerContext* context, const v1::OpenSliceRequest* request,
                                   v1::OpenSliceResponse* response) {
  if (!has_token(*context)) return no_session();
  const std::scoped_lock lock(mutex_);
  response->set_slice(++last_id_);
  response->set_granularity(kExtent);
  response->set_limit(request->limit() != 0 ? request->limit() : 16 * kExtent);
  const auto& devices = driver_->devices();
  const auto of = std::ranges::find(devices, request->device(),
                                    [](const cuda::Device& device) { return to_string(device.uuid); });
  slices_.emplace(response->slice(), of - devices.begin());
  return grpc::Status::OK;
}

grpc::Status FakeBroker::Grow(grpc::ServerContext* context, const v1::GrowRequest* request,
                              v1::GrowResponse* response) {
  if (!has_token(*context)) return no_session();
  if (before_grant) before_grant();
  {
    const std::scoped_lock lock(mutex_);
    requests_.push_back(*request);
  }
  if (refuse_growth) return refuse_growth(*context);
  if (!enough_for(*request)) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "not enough"};
  lend(*request, *response);
  if (tamper) tamper(*response);
  return grpc::Status::OK;
}

bool FakeBroker::enough_for(const v1::GrowRequest& request) const {
  return std::ranges::all_of(request.parts(), [this](const v1::GrowPart& part) {
    return (part.min_bytes() != 0 ? part.min_bytes() : part.bytes()) <= most;
  });
}

void FakeBroker::lend(const v1::GrowRequest& request, v1::GrowResponse& response) {
  const std::scoped_lock lock(mutex_);
  response.set_grant(++last_id_);
  for (const v1::GrowPart& part : request.parts()) lend_part(part, response);
  std::vector<std::uint64_t> leases;
  for (const v1::Lease& lease : response.leases()) leases.push_back(lease.id());
  // Two messages, the later leases first: the client goes by the order of the answer.
  const std::size_t half = leases.size() / 2;
  offer(response.grant(), {leases.begin() + static_cast<std::ptrdiff_t>(half), leases.end()});
  if (half > 0) offer(response.grant(), {leases.begin(), leases.begin() + static_cast<std::ptrdiff_t>(half)});
}

void FakeBroker::lend_part(const v1::GrowPart& part, v1::GrowResponse& response) {
  const std::size_t ordinal = slices_.at(part.slice());
  std::uint64_t left = std::min(part.bytes(), most);
  for (std::size_t i = 0; left > 0; ++i) {
    const std::uint64_t size = i < extent_sizes.size() ? extent_sizes[i] : kExtent;
    auto memory = cuda::Allocation::create(*driver_, static_cast<int>(ordinal), {size});
    ASSERT_TRUE(memory) << to_string(memory.error());
    v1::Lease* lease = response.add_leases();
    lease->set_id(++last_id_);
    lease->set_size(size);
    lease->set_slice(part.slice());
    loans_.emplace(lease->id(), Loan{size, ordinal, std::move(*memory)});
    left -= std::min(left, size);
  }
}

void FakeBroker::offer(std::uint64_t grant, const std::vector<std::uint64_t>& leases) {
  v1::ToClient message;
  message.mutable_offer()->set_grant(grant);
  std::vector<UniqueFd> exported;
  std::vector<int> numbers;
  for (const std::uint64_t lease : leases) {
    message.mutable_offer()->add_leases(lease);
    exported.push_back(std::move(*loans_.at(lease).memory.export_descriptor()));
    numbers.push_back(exported.back().get());
  }
  send_message(lane_socket_, message, numbers);
}

grpc::Status FakeBroker::Return(grpc::ServerContext* context, const v1::ReturnRequest* request,
                                v1::ReturnResponse*) {
  if (!has_token(*context)) return no_session();
  if (refuse_return) {
    if (const grpc::Status refused = refuse_return(); !refused.ok()) return refused;
  }
  const std::scoped_lock lock(mutex_);
  for (const std::uint64_t lease : request->leases()) {
    const auto loan = loans_.find(lease);
    if (loan == loans_.end()) return {grpc::StatusCode::NOT_FOUND, "not on loan"};
    DeviceFigures& device = figures_.devices[kUnseen + loan->second.ordinal];
    device.pressure -= std::min(device.pressure, loan->second.size);
    loans_.erase(loan);
  }
  publish();
  return grpc::Status::OK;
}

grpc::Status FakeBroker::Charge(grpc::ServerContext* context, const v1::ChargeRequest* request,
                                v1::ChargeResponse*) {
  if (!has_token(*context)) return no_session();
  const std::scoped_lock lock(mutex_);
  charges_.push_back(*request);
  return grpc::Status::OK;
}

grpc::Status FakeBroker::CloseSlice(grpc::ServerContext* context, const v1::CloseSliceRequest* request,
                                    v1::CloseSliceResponse*) {
  if (!has_token(*context)) return no_session();
  const std::scoped_lock lock(mutex_);
  EXPECT_EQ(slices_.erase(request->slice()), 1U);
  return grpc::Status::OK;
}

grpc::Status FakeBroker::Ping(grpc::ServerContext* context, const v1::PingRequest*, v1::PingResponse*) {
  return has_token(*context) ? grpc::Status::OK : no_session();
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

std::vector<v1::GrowRequest> FakeBroker::requests() const {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

std::vector<v1::ChargeRequest> FakeBroker::charges() const {
  const std::scoped_lock lock(mutex_);
  return charges_;
}

std::uint64_t FakeBroker::in_use() const {
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
