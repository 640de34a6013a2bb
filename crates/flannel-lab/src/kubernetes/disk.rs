//! Files of a lab's Kubernetes: its keys and tokens, and what a node's flanneld reads.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::Kubernetes;
use super::objects::{ACCOUNT, NAMESPACE};
use crate::node::Node;
use crate::{LabError, Result, program};

/// What a flanneld of kube-flannel is told; the net-conf is where it looks by itself.
pub(crate) const STORE_ARGS: [&str; 3] =
    ["--kube-subnet-mgr", "--kubeconfig-file", "/etc/kube-flannel/kubeconfig"];
/// Where a node has them.
const FOLDER: &str = "/etc/kube-flannel";
const NET_CONF: &str = "net-conf.json";

impl Kubernetes<'_> {
    /// The key that signs accounts' tokens, a token for the administrator and one for flannel.
    pub(super) fn write_secrets(&self) -> Result<()> {
        let (key, admin, flannel) = (self.file("sa.key"), new_token()?, new_token()?);
        let words = ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", &key];
        program::run(program::command("openssl").args(words))?;
        let account = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let tokens = format!(
            "{admin},admin,admin,\"system:masters\"\n{flannel},{account},{ACCOUNT},\"system:serviceaccounts\"\n"
        );
        program::write(self.file("tokens.csv"), &tokens)?;
        program::write(self.file("admin.token"), &admin)?;
        program::write(self.file("flannel.token"), &flannel)?;
        let login =
            self.kubeconfig(&format!("{}/apiserver.crt", self.folder().display()), &self.file("admin.token"));
        program::write(self.file("admin.kubeconfig"), &login)
    }

    /// The token of an administrator.
    pub fn admin_token(&self) -> Result<String> {
        program::read(self.file("admin.token"))
    }

    /// The token that the nodes' daemons have, unless a test gives them another.
    pub fn flannel_token(&self) -> Result<String> {
        program::read(self.file("flannel.token"))
    }

    /// How to reach the API server, with which certificate and whose token.
    fn kubeconfig(&self, certificate: &str, token: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: lab\n\
             clusters:\n- name: lab\n  cluster:\n    server: {}\n    certificate-authority: {certificate}\n\
             users:\n- name: lab\n  user:\n    tokenFile: {token}\n\
             contexts:\n- name: lab\n  context:\n    cluster: lab\n    user: lab\n",
            self.url()
        )
    }

    /// Writes what a node's flanneld needs to reach the API server.
    pub(super) fn furnish(&self, node: &Node) -> Result<()> {
        let folder = node.disk_path(FOLDER);
        let certificate = program::read(self.certificate())?;
        program::write(folder.join("ca.crt"), &certificate)?;
        program::write(folder.join("token"), &self.flannel_token()?)?;
        let login = self.kubeconfig(&format!("{FOLDER}/ca.crt"), &format!("{FOLDER}/token"));
        program::write(folder.join("kubeconfig"), &login)
    }

    /// Gives every node a net-conf, as the kubelet does with an edited ConfigMap: a new folder, and one link swapped.
    pub(crate) fn write_net_conf(&self, text: &str) -> Result<()> {
        self.lab.nodes().iter().try_for_each(|node| swap_in(&node.disk_path(FOLDER), text))
    }
}

fn swap_in(folder: &Path, text: &str) -> Result<()> {
    let version = format!("..{}", new_token()?);
    program::make_folder(folder.join(&version))?;
    program::write(folder.join(&version).join(NET_CONF), text)?;
    let (data, draft, name) = (folder.join("..data"), folder.join("..data_tmp"), folder.join(NET_CONF));
    let before = fs::read_link(&data).ok();
    symlink(&version, &draft).map_err(LabError::file("create", &draft))?;
    fs::rename(&draft, &data).map_err(LabError::file("rename", &draft))?;
    if !name.is_symlink() {
        symlink(format!("..data/{NET_CONF}"), &name).map_err(LabError::file("create", &name))?;
    }
    before.map_or(Ok(()), |old| {
        let old = folder.join(old);
        fs::remove_dir_all(&old).map_err(LabError::file("remove", old))
    })
}

fn new_token() -> Result<String> {
    Ok(program::read("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}
