#include "tests/unit/client/fake_broker.h"

#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include "cuda/nvml.h"
#include "proto/lane.h"
#include "shm/pages.h"
#include "sim/machine/machine.h"

namespace gpumem::client::test {
namespace {

constexpr std::uint64_t kExtent = 2 << 20;

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

FakeBroker::FakeBroker() : driver_(simulated_driver()), lane_([this](int socket) { serve_lane(socket); }) {
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
  std::vector<std::string> devices{
      "GPU-00000000-0000-0000-0000-000000000000"};  // one that the client cannot see
  for (const cuda::Device& device : driver_->devices()) devices.push_back(to_string(device.uuid));
  v1::ToClient message = welcome(devices);
  message.mutable_welcome()->set_driver_folder(simulated_machine().string());
  const UniqueFd broker_page = broker_page_file();
  const UniqueFd client_page = client_page_file();
  {
    const std::scoped_lock lock(mutex_);
    lane_socket_ = socket;
  }
  send_message(socket, message, {broker_page.get(), client_page.get()});
  for (;;) {
    const v1::ToBroker said = receive_message(socket);
    if (!said.has_accept()) return;
    const std::scoped_lock lock(mutex_);
    accepted_.insert(said.accept().grant());
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
  slices_.insert(response->slice());
  return grpc::Status::OK;
}

grpc::Status FakeBroker::Grow(grpc::ServerContext* context, const v1::GrowRequest* request,
                              v1::GrowResponse* response) {
  if (!has_token(*context)) return no_session();
  if (before_grant) before_grant();
  if (refuse_growth) return refuse_growth(*context);
  lend(*request, *response);
  if (tamper) tamper(*response);
  return grpc::Status::OK;
}

void FakeBroker::lend(const v1::GrowRequest& request, v1::GrowResponse& response) {
  const std::scoped_lock lock(mutex_);
  ++growths_;
  response.set_grant(++last_id_);
  std::vector<std::uint64_t> leases;
  std::uint64_t left = request.bytes();
  for (std::size_t i = 0; left > 0; ++i) {
    const std::uint64_t size = i < extent_sizes.size() ? extent_sizes[i] : kExtent;
    auto memory = cuda::Allocation::create(*driver_, 0, {size});
    ASSERT_TRUE(memory) << to_string(memory.error());
    const std::uint64_t id = ++last_id_;
    loans_.emplace(id, Loan{size, std::move(*memory)});
    v1::Lease* lease = response.add_leases();
    lease->set_id(id);
    lease->set_size(size);
    leases.push_back(id);
    left -= std::min(left, size);
  }
  // Two messages, the later leases first: the client goes by the order of the answer.
  const std::size_t half = leases.size() / 2;
  offer(response.grant(), {leases.begin() + static_cast<std::ptrdiff_t>(half), leases.end()});
  if (half > 0) offer(response.grant(), {leases.begin(), leases.begin() + static_cast<std::ptrdiff_t>(half)});
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
  for (const std::uint64_t lease : request->leases()) EXPECT_EQ(loans_.erase(lease), 1U);
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
  return growths_;
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

}  // namespace gpumem::client::test
