#pragma once
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>

#include <memory>
#include <string>

#include "proto/lane.h"
#include "tests/hostile/clients/as_user.h"
#include "tests/hostile/clients/silent_clients.h"
#include "tests/support/broker_process.h"

namespace gpumem::test {

/// A channel to the broker of the folder, from this process, which the kernel says is the user's.
inline std::shared_ptr<grpc::Channel> connect_as(const std::string& folder, const User& user) {
  const AsUser become(user.uid, BrokerProcess::kGroup);
  UniqueFd connection = connect_to_stream(folder + "/" + kApiSocketName);
  ::fcntl(connection.get(), F_SETFL, O_NONBLOCK);
  return grpc::CreateInsecureChannelFromFd("broker", connection.release());
}

}  // namespace gpumem::test
