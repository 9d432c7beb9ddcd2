//! Any text is either settings or a one-line error, and settings can be written and read again.
#![no_main]

use roost_settings::Settings;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match Settings::parse(text, "fuzz.toml") {
        Ok(settings) => {
            let again = Settings::parse(&settings.to_toml(), "again.toml").expect("its own words");
            for setting in roost_settings::all() {
                assert_eq!(again.is_on(setting.name), settings.is_on(setting.name));
            }
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
    }
});
