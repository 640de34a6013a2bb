//! What every plugin does before its own work: environment, standard input, versions, the form of answers.

use conformance_tests::version::{ALL, WITH_LISTS};
use conformance_tests::{Answer, Call, Stage, scenarios};
use serde_json::{Value, json};

scenarios! { "host-local":
    &["1.0.0"] =>
        version_tells_all_versions_and_reads_nothing,
        a_missing_variable_is_named,
        variables_that_are_missing_together_are_named_together,
        a_container_id_of_odd_characters_is_refused,
        an_interface_name_that_linux_would_refuse_is_refused,
        del_needs_no_namespace,
        a_configuration_without_version_is_of_the_first_one,
        a_version_is_known_only_by_its_whole_name,
        a_version_that_is_none_cannot_be_read,
        what_is_no_json_object_is_refused,
        a_network_needs_a_plain_name,
        an_unknown_command_is_refused_after_the_configuration,
        without_a_command_a_person_is_told_about_the_plugin,
        input_that_cannot_be_read_is_an_input_failure,
        answers_are_indented_by_four_and_end_without_newline,
        keys_are_found_in_any_case,
        a_null_is_as_good_as_nothing,
        the_hosts_own_namespace_is_refused,
        the_hosts_own_namespace_is_refused_before_anything_is_done;
    ALL.as_slice() => check_gc_and_status_begin_with_their_versions, results_have_the_form_of_their_version;
    WITH_LISTS => a_previous_result_of_another_form_is_refused;
}

const PLUGINS: [&str; 5] = ["flannel", "bridge", "host-local", "portmap", "loopback"];
const COMMANDS: [&str; 5] = ["ADD", "DEL", "CHECK", "GC", "STATUS"];

/// Each plugin that these have.
fn plugins<'a>(stage: &'a Stage) -> impl Iterator<Item = &'static str> + 'a {
    PLUGINS.into_iter().filter(|plugin| stage.plugins.have(plugin))
}

/// A call with the least configuration that is one, in a version that even the oldest plugin speaks.
fn plain<'a>(stage: &'a Stage, command: &str, plugin: &str) -> Call<'a> {
    stage.call(command, plugin, &json!({"cniVersion": "0.4.0", "name": "n", "type": plugin}))
}

fn host_local(stage: &Stage, version: Value) -> Value {
    json!({"cniVersion": version, "name": "n", "type": "x",
        "ipam": {"type": "host-local", "subnet": "10.1.2.0/24", "routes": [{"dst": "10.9.0.0/16"}]},
        "site": stage.site.process()})
}

fn version_tells_all_versions_and_reads_nothing(stage: &Stage) {
    for plugin in plugins(stage) {
        let call = Call::new(&stage.site, &stage.plugins.folder, plugin, "VERSION").unreadable();
        let answer =
            call.unset("CNI_CONTAINERID").unset("CNI_NETNS").unset("CNI_IFNAME").unset("CNI_PATH").run();
        let told = answer.result();
        let versions: Vec<_> = told["supportedVersions"].as_array().unwrap().iter().collect();
        assert_eq!(told["cniVersion"], **versions.last().unwrap(), "{plugin} tells its newest");
        assert_eq!(answer.stdout, format!("{told}\n"), "{plugin} is brief");
        if stage.plugins.is_ours() {
            assert_eq!(versions, ALL.iter().collect::<Vec<_>>(), "{plugin}");
        }
    }
}

fn a_missing_variable_is_named(stage: &Stage) {
    for plugin in plugins(stage) {
        for (variable, needed_by) in [
            ("CNI_CONTAINERID", &COMMANDS[..3]),
            ("CNI_NETNS", &["ADD", "CHECK"]),
            ("CNI_IFNAME", &COMMANDS[..3]),
            ("CNI_PATH", &COMMANDS[..3]),
        ] {
            for command in needed_by {
                plain(stage, command, plugin).unset(variable).run().fails(4, variable);
                plain(stage, command, plugin).set(variable, "").run().fails(4, variable);
            }
        }
    }
}

fn variables_that_are_missing_together_are_named_together(stage: &Stage) {
    for plugin in plugins(stage) {
        let call = plain(stage, "ADD", plugin).unset("CNI_CONTAINERID").unset("CNI_NETNS");
        let words = "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME] missing";
        call.unset("CNI_IFNAME").run().fails(4, words);
    }
}

fn a_container_id_of_odd_characters_is_refused(stage: &Stage) {
    for id in ["-a", ".a", "a/b", "a b", "a%", "ä"] {
        for command in &COMMANDS[..3] {
            plain(stage, command, "host-local").container(id).run().fails(4, "");
        }
    }
}

fn an_interface_name_that_linux_would_refuse_is_refused(stage: &Stage) {
    for name in ["1234567890123456", ".", "..", "a/b", "a:b", "a b", "a\u{a0}b"] {
        for command in &COMMANDS[..3] {
            plain(stage, command, "host-local").interface(name).run().fails(4, "");
        }
    }
}

fn del_needs_no_namespace(stage: &Stage) {
    for version in ["0.3.1", "0.4.0"] {
        let config = host_local(stage, version.into());
        stage.call("DEL", "host-local", &config).unset("CNI_NETNS").run().nothing();
        let config = json!({"cniVersion": version, "name": "lo", "type": "loopback"});
        stage.call("DEL", "loopback", &config).set("CNI_NETNS", "").run().nothing();
    }
}

fn a_configuration_without_version_is_of_the_first_one(stage: &Stage) {
    let expected = json!({"ip": "10.1.2.2/24", "gateway": "10.1.2.1", "routes": [{"dst": "10.9.0.0/16"}]});
    for (container, version) in [("a", json!("")), ("b", Value::Null)] {
        let mut config = host_local(stage, version);
        config["name"] = container.into();
        let result = stage.call("ADD", "host-local", &config).container(container).run().result();
        assert_eq!(result, json!({"cniVersion": "0.1.0", "ip4": expected, "dns": {}}));
    }
}

fn a_version_is_known_only_by_its_whole_name(stage: &Stage) {
    for plugin in plugins(stage) {
        for version in ["9.9.9", "1.0", "1", "v1.0.0", "1.0.0 ", "0.5.0"] {
            let config = json!({"cniVersion": version, "name": "n", "type": plugin});
            stage.call("ADD", plugin, &config).run().fails(1, "incompatible CNI versions");
            stage.call("DEL", plugin, &config).run().fails(1, "incompatible CNI versions");
        }
    }
}

fn a_version_that_is_none_cannot_be_read(stage: &Stage) {
    for plugin in plugins(stage).filter(|plugin| stage.plugins.speaks(plugin, "1.1.0")) {
        for version in ["x", "1.x.0", "1.0.0.0"] {
            let config = json!({"cniVersion": version, "name": "n", "type": plugin});
            for command in &COMMANDS[2..] {
                stage.call(command, plugin, &config).run().fails(6, "");
            }
        }
    }
}

fn what_is_no_json_object_is_refused(stage: &Stage) {
    let good = host_local(stage, "0.4.0".into()).to_string();
    for text in ["", "{", "x", "[]", "7", r#"{"name": 1}"#, &format!("{good} x"), &format!("{good}{good}")] {
        for command in &COMMANDS[..3] {
            plain(stage, command, "host-local").text(text).run().fails(6, "");
        }
    }
    stage.call("ADD", "host-local", &json!(null)).text(format!(" {good}\n")).run().result();
}

fn a_network_needs_a_plain_name(stage: &Stage) {
    for plugin in plugins(stage) {
        let named = |name: Value| json!({"cniVersion": "0.4.0", "name": name, "type": plugin});
        stage.call("ADD", plugin, &named("".into())).run().fails(7, "missing network name");
        stage.call("ADD", plugin, &named(Value::Null)).run().fails(7, "missing network name");
        for name in ["a/b", "../a", ".a", "a b"] {
            stage.call("ADD", plugin, &named(name.into())).run().fails(7, "");
        }
    }
}

fn an_unknown_command_is_refused_after_the_configuration(stage: &Stage) {
    for plugin in plugins(stage) {
        plain(stage, "FOO", plugin).run().fails(4, "FOO");
        plain(stage, "add", plugin).run().fails(4, "add");
        plain(stage, "FOO", plugin).text("").run().fails(6, "");
    }
}

fn without_a_command_a_person_is_told_about_the_plugin(stage: &Stage) {
    for plugin in plugins(stage) {
        let answer = plain(stage, "ADD", plugin).unset("CNI_COMMAND").run();
        answer.nothing();
        assert!(answer.stderr.contains(plugin), "{}", answer.stderr);
        if stage.plugins.speaks(plugin, "1.0.0") {
            let words = "CNI protocol versions supported: 0.1.0, 0.2.0, ";
            assert!(answer.stderr.contains(words), "{}", answer.stderr);
        }
    }
}

fn input_that_cannot_be_read_is_an_input_failure(stage: &Stage) {
    for plugin in plugins(stage) {
        for command in ["ADD", "DEL", "FOO"] {
            plain(stage, command, plugin).unreadable().run().fails(5, "error reading from stdin");
        }
    }
}

fn answers_are_indented_by_four_and_end_without_newline(stage: &Stage) {
    let is_tidy = |answer: &Answer, key: &str| {
        let head = format!("{{\n    \"{key}\": ");
        assert!(answer.stdout.starts_with(&head) && answer.stdout.ends_with("\n}"), "{:?}", answer.stdout);
    };
    is_tidy(&stage.call("ADD", "host-local", &host_local(stage, "1.0.0".into())).run(), "cniVersion");
    is_tidy(&stage.call("ADD", "host-local", &host_local(stage, "1.0.0".into())).run(), "code");
}

fn keys_are_found_in_any_case(stage: &Stage) {
    let config = json!({"CNIVERSION": stage.version, "NAME": "n", "Type": "x",
        "RuntimeConfig": {"IPRANGES": [[{"SUBNET": "10.3.0.0/24", "RANGESTART": "10.3.0.9", "Gateway": "10.3.0.7"}]]},
        "IPAM": {"TYPE": "host-local", "Routes": [{"DST": "10.9.0.0/16", "GW": "10.3.0.8"}]}});
    let result = stage.call("ADD", "host-local", &config).run().result();
    let expected = json!({"cniVersion": stage.version,
        "ips": [{"address": "10.3.0.9/24", "gateway": "10.3.0.7"}],
        "routes": [{"dst": "10.9.0.0/16", "gw": "10.3.0.8"}]});
    assert_eq!(strip_empty_dns(result), expected);
}

fn a_null_is_as_good_as_nothing(stage: &Stage) {
    let mut config = host_local(stage, stage.version.into());
    for key in ["prevResult", "args", "runtimeConfig", "capabilities", "dns"] {
        config[key] = Value::Null;
    }
    for key in ["rangeStart", "gateway", "dataDir", "resolvConf", "ranges"] {
        config["ipam"][key] = Value::Null;
    }
    let result = stage.call("ADD", "host-local", &config).run().result();
    assert_eq!(result["ips"], json!([{"address": "10.1.2.2/24", "gateway": "10.1.2.1"}]));
}

fn the_hosts_own_namespace_is_refused(stage: &Stage) {
    let own = format!("/proc/{}/ns/net", stage.site.process());
    let config = host_local(stage, stage.version.into());
    stage.call("DEL", "host-local", &config).set("CNI_NETNS", &*own).run().fails(8, "should not be the same");
    for wish in ["1", "TRUE", "true"] {
        let call = stage.call("DEL", "host-local", &config).set("CNI_NETNS", &*own);
        call.set("CNI_NETNS_OVERRIDE", wish).run().nothing();
    }
}

fn the_hosts_own_namespace_is_refused_before_anything_is_done(stage: &Stage) {
    let own = format!("/proc/{}/ns/net", stage.site.process());
    let config = json!({"cniVersion": stage.version, "name": "lo", "type": "loopback"});
    stage.call("DEL", "loopback", &config).set("CNI_NETNS", &*own).run().fails(8, "should not be the same");
    assert!(stage.site.device(None, "lo")["flags"].to_string().contains("UP"), "the host's lo is left alone");
    let config = host_local(stage, stage.version.into());
    stage.call("ADD", "host-local", &config).set("CNI_NETNS", &*own).run().fails(8, "should not be the same");
    assert_eq!(stage.site.files("/var/lib/cni/networks").len(), 0, "no address is taken");
}

fn check_gc_and_status_begin_with_their_versions(stage: &Stage) {
    stage.site.pod("pod1");
    for plugin in plugins(stage).filter(|plugin| stage.plugins.speaks(plugin, stage.version)) {
        let config = stage.config("n", plugin, json!({}));
        if !stage.at_least("0.4.0") {
            stage.call("CHECK", plugin, &config).run().fails(1, "config version does not allow CHECK");
        }
        if stage.at_least("1.1.0") || !stage.plugins.speaks(plugin, "1.1.0") {
            continue;
        }
        stage.call("GC", plugin, &config).run().fails(1, "config version does not allow GC");
        stage.call("STATUS", plugin, &config).run().fails(1, "config version does not allow STATUS");
    }
}

fn results_have_the_form_of_their_version(stage: &Stage) {
    let config = stage.config(
        "n",
        "x",
        json!({"ipam": {"type": "host-local",
        "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0", "gw": "fd00::9"}]}}),
    );
    let result = stage.call("ADD", "host-local", &config).run().result();
    let old = json!({"cniVersion": stage.version, "dns": {},
        "ip4": {"ip": "10.1.2.2/24", "gateway": "10.1.2.1", "routes": [{"dst": "0.0.0.0/0"}]},
        "ip6": {"ip": "fd00::2/64", "gateway": "fd00::1", "routes": [{"dst": "::/0", "gw": "fd00::9"}]}});
    let mut new = json!({"cniVersion": stage.version,
        "ips": [{"address": "10.1.2.2/24", "gateway": "10.1.2.1"}, {"address": "fd00::2/64", "gateway": "fd00::1"}],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0", "gw": "fd00::9"}]});
    if !stage.at_least("1.0.0") {
        new["dns"] = json!({});
        (new["ips"][0]["version"], new["ips"][1]["version"]) = ("4".into(), "6".into());
    }
    assert_eq!(result, if stage.at_least("0.3.0") { new } else { old });
}

fn a_previous_result_of_another_form_is_refused(stage: &Stage) {
    let foreign = if stage.at_least("1.0.0") { "0.4.0" } else { "1.0.0" };
    stage.site.pod("pod1");
    let config = stage.config("lo", "loopback", json!({"prevResult": {"cniVersion": foreign, "ips": []}}));
    stage.call("ADD", "loopback", &config).run().fails(999, "could not parse prevResult");
}

fn strip_empty_dns(mut result: Value) -> Value {
    if result["dns"] == json!({}) {
        result.as_object_mut().unwrap().remove("dns");
    }
    result
}
