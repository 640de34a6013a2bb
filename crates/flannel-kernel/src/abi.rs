//! The numbers of the kernel's netlink interface that we use.
//!
//! They stand here and not in `libc` because `libc` lacks about half of them, and another half on musl. Names
//! are those of `linux/rtnetlink.h`, `if_link.h`, `neighbour.h` and `netlink.h`, so that they can be looked up.

pub const AF_UNSPEC: u8 = 0;
pub const AF_INET: u8 = 2;
pub const AF_BRIDGE: u8 = 7;
pub const AF_INET6: u8 = 10;

pub const NLM_F_REQUEST: u16 = 0x1;
pub const NLM_F_ACK: u16 = 0x4;
pub const NLM_F_ECHO: u16 = 0x8;
pub const NLM_F_DUMP_INTR: u16 = 0x10;
pub const NLM_F_DUMP: u16 = 0x300;
pub const NLM_F_REPLACE: u16 = 0x100;
pub const NLM_F_EXCL: u16 = 0x200;
pub const NLM_F_CREATE: u16 = 0x400;
/// In an answer: the error carries only the header of the request.
pub const NLM_F_CAPPED: u16 = 0x100;
/// In an answer: attributes follow the error, among them the kernel's own words.
pub const NLM_F_ACK_TLVS: u16 = 0x200;

pub const NLMSG_ERROR: u16 = 2;
pub const NLMSG_DONE: u16 = 3;
pub const NLMSGERR_ATTR_MSG: u16 = 1;

pub const NLA_F_NESTED: u16 = 0x8000;
pub const NLA_TYPE_MASK: u16 = 0x3fff;

pub const SOL_NETLINK: i32 = 270;
pub const NETLINK_ADD_MEMBERSHIP: i32 = 1;
pub const NETLINK_CAP_ACK: i32 = 10;
pub const NETLINK_EXT_ACK: i32 = 11;
pub const NETLINK_GET_STRICT_CHK: i32 = 12;

pub const RTNLGRP_LINK: u32 = 1;
pub const RTNLGRP_NEIGH: u32 = 3;
pub const RTNLGRP_IPV4_IFADDR: u32 = 5;
pub const RTNLGRP_IPV4_ROUTE: u32 = 7;
pub const RTNLGRP_IPV6_IFADDR: u32 = 9;
pub const RTNLGRP_IPV6_ROUTE: u32 = 11;

pub const RTM_NEWLINK: u16 = 16;
pub const RTM_DELLINK: u16 = 17;
pub const RTM_GETLINK: u16 = 18;
pub const RTM_SETLINK: u16 = 19;
pub const RTM_NEWADDR: u16 = 20;
pub const RTM_DELADDR: u16 = 21;
pub const RTM_GETADDR: u16 = 22;
pub const RTM_NEWROUTE: u16 = 24;
pub const RTM_DELROUTE: u16 = 25;
pub const RTM_GETROUTE: u16 = 26;
pub const RTM_NEWNEIGH: u16 = 28;
pub const RTM_DELNEIGH: u16 = 29;
pub const RTM_GETNEIGH: u16 = 30;

pub const IFF_UP: u32 = 0x1;
pub const IFF_LOOPBACK: u32 = 0x8;
pub const IFF_RUNNING: u32 = 0x40;
pub const IFF_PROMISC: u32 = 0x100;
pub const IFF_LOWER_UP: u32 = 0x1_0000;

pub const IFLA_ADDRESS: u16 = 1;
pub const IFLA_IFNAME: u16 = 3;
pub const IFLA_MTU: u16 = 4;
pub const IFLA_LINK: u16 = 5;
pub const IFLA_MASTER: u16 = 10;
pub const IFLA_TXQLEN: u16 = 13;
pub const IFLA_OPERSTATE: u16 = 16;
pub const IFLA_LINKINFO: u16 = 18;
pub const IFLA_IFALIAS: u16 = 20;
pub const IFLA_AF_SPEC: u16 = 26;
pub const IFLA_NET_NS_FD: u16 = 28;
pub const IFLA_EXT_MASK: u16 = 29;
pub const IFLA_NUM_TX_QUEUES: u16 = 31;
pub const IFLA_NUM_RX_QUEUES: u16 = 32;
pub const IFLA_LINK_NETNSID: u16 = 37;
pub const IFLA_INET_CONF: u16 = 1;
pub const IPV4_DEVCONF_ARP_NOTIFY: u16 = 22;
pub const IFLA_INFO_KIND: u16 = 1;
pub const IFLA_INFO_DATA: u16 = 2;
pub const IFLA_INFO_SLAVE_KIND: u16 = 4;
pub const IFLA_INFO_SLAVE_DATA: u16 = 5;
/// Counters of every device would double the size of a dump.
pub const RTEXT_FILTER_SKIP_STATS: u32 = 8;

pub const VETH_INFO_PEER: u16 = 1;

pub const IFLA_BR_VLAN_FILTERING: u16 = 7;
pub const IFLA_BR_VLAN_DEFAULT_PVID: u16 = 39;
pub const IFLA_BRPORT_MODE: u16 = 4;
pub const IFLA_BRPORT_ISOLATED: u16 = 33;
pub const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
pub const BRIDGE_VLAN_INFO_PVID: u16 = 2;
pub const BRIDGE_VLAN_INFO_UNTAGGED: u16 = 4;
pub const BRIDGE_VLAN_INFO_RANGE_BEGIN: u16 = 8;
pub const BRIDGE_VLAN_INFO_RANGE_END: u16 = 16;

pub const IFLA_VXLAN_ID: u16 = 1;
pub const IFLA_VXLAN_LINK: u16 = 3;
pub const IFLA_VXLAN_LOCAL: u16 = 4;
pub const IFLA_VXLAN_TTL: u16 = 5;
pub const IFLA_VXLAN_TOS: u16 = 6;
pub const IFLA_VXLAN_LEARNING: u16 = 7;
pub const IFLA_VXLAN_PORT: u16 = 15;
pub const IFLA_VXLAN_LOCAL6: u16 = 17;
pub const IFLA_VXLAN_GBP: u16 = 23;

pub const IFA_ADDRESS: u16 = 1;
pub const IFA_LOCAL: u16 = 2;
pub const IFA_BROADCAST: u16 = 4;
pub const IFA_FLAGS: u16 = 8;
pub const IFA_F_TEMPORARY: u32 = 0x01;
pub const IFA_F_NODAD: u32 = 0x02;
pub const IFA_F_DADFAILED: u32 = 0x08;
pub const IFA_F_DEPRECATED: u32 = 0x20;
pub const IFA_F_TENTATIVE: u32 = 0x40;
pub const IFA_F_PERMANENT: u32 = 0x80;

pub const NDA_DST: u16 = 1;
pub const NDA_LLADDR: u16 = 2;
pub const NDA_PORT: u16 = 6;
pub const NDA_VNI: u16 = 7;
pub const NDA_IFINDEX: u16 = 8;
pub const NDA_PROTOCOL: u16 = 12;
pub const NUD_PERMANENT: u16 = 0x80;
pub const NTF_SELF: u8 = 0x02;
pub const NTF_EXT_LEARNED: u8 = 0x10;

pub const RTA_DST: u16 = 1;
pub const RTA_OIF: u16 = 4;
pub const RTA_GATEWAY: u16 = 5;
pub const RTA_PRIORITY: u16 = 6;
pub const RTA_PREFSRC: u16 = 7;
pub const RTA_METRICS: u16 = 8;
pub const RTA_MULTIPATH: u16 = 9;
pub const RTA_TABLE: u16 = 15;
pub const RTA_VIA: u16 = 18;
pub const RTA_ENCAP_TYPE: u16 = 21;
pub const RT_TABLE_MAIN: u8 = 254;
pub const RT_SCOPE_UNIVERSE: u8 = 0;
pub const RT_SCOPE_LINK: u8 = 253;
pub const RT_SCOPE_NOWHERE: u8 = 255;
pub const RTN_UNICAST: u8 = 1;
pub const RTN_LOCAL: u8 = 2;
pub const RTN_MULTICAST: u8 = 5;
pub const RTN_BLACKHOLE: u8 = 6;
pub const RTN_PROHIBIT: u8 = 8;
pub const RTNH_F_ONLINK: u32 = 4;
pub const RTAX_MTU: u16 = 2;
pub const RTAX_ADVMSS: u16 = 8;
/// The maker of a route that somebody added by hand, as Go's plugins say.
pub const RTPROT_BOOT: u8 = 3;
pub const RTM_F_CLONED: u32 = 0x200;
/// The metric that the kernel gives to an IPv6 route without one.
pub const IP6_RT_PRIO_USER: u32 = 1024;
