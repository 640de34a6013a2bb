// cnitool 1.3.0: the runtime side of CNI as its authors wrote it, to call our plugins with.
module peers/cnitool

go 1.24.0

tool github.com/containernetworking/cni/cnitool

require github.com/containernetworking/cni v1.3.0 // indirect
